"""Results of Celery's tasks, which wait for them by SUBSCRIBE: python celery_results.py PORT"""

import sys

from celery import Celery, group
from celery.contrib.testing.worker import start_worker

app = Celery(
    "tests", broker="memory://", backend=f"redis://127.0.0.1:{sys.argv[1]}/2"
)
app.conf.update(result_expires=60, broker_connection_retry_on_startup=False)


@app.task
def add(x, y):
    return x + y


@app.task
def fail():
    raise ValueError("on purpose")


with start_worker(app, perform_ping_check=False, pool="threads", concurrency=2):
    for n in range(20):
        assert add.delay(n, 1).get(timeout=20) == n + 1
    results = group(add.s(n, n) for n in range(10))().get(timeout=20)
    assert results == [2 * n for n in range(10)], results
    failed = fail.delay()
    try:
        failed.get(timeout=20)
        raise SystemExit("a task that fails has succeeded")
    except ValueError as error:
        assert str(error) == "on purpose"
    assert failed.state == "FAILURE"
    result = add.delay(1, 2)
    assert result.get(timeout=20) == 3
    again = app.AsyncResult(result.id)
    assert again.state == "SUCCESS" and again.result == 3
    again.forget()
    assert app.AsyncResult(result.id).state == "PENDING"
print("ok")

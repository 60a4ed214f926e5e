"""Flask-Session: python flask_session_app.py PORT"""

import sys

import redis
from events import patiently, restart
from flask import Flask, session
from flask_session import Session

store = redis.Redis(port=int(sys.argv[1]), db=4)
app = Flask(__name__)
app.config.update(SESSION_TYPE="redis", SESSION_REDIS=store, SESSION_PERMANENT=True)
Session(app)


@app.route("/add")
def add():
    session["n"] = session.get("n", 0) + 1
    session["list"] = session.get("list", []) + [session["n"]]
    return {"n": session["n"], "list": session["list"]}


@app.route("/leave")
def leave():
    session.clear()
    return "gone"


client, other = app.test_client(), app.test_client()
assert client.get("/add").json == {"n": 1, "list": [1]}
assert client.get("/add").json == {"n": 2, "list": [1, 2]}
assert other.get("/add").json["n"] == 1
restart()
patiently(store.ping)
assert client.get("/add").json == {"n": 3, "list": [1, 2, 3]}
assert store.dbsize() == 2
assert all(store.ttl(key) > 0 for key in store.scan_iter("session:*"))
client.get("/leave")
assert store.dbsize() == 1
assert client.get("/add").json["n"] == 1 and other.get("/add").json["n"] == 2
print("ok")

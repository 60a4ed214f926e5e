"""redis-py over TLS: tls.py TLS_ENTRY_PORT TLS_DIRECT_PORT CA [CERT KEY]."""

import socket
import ssl
import sys
import time

import redis
from redis.cluster import RedisCluster

ENTRY, DIRECT = (int(port) for port in sys.argv[1:3])
CA, *OWN = sys.argv[3:]
FILES = {"ssl": True, "ssl_ca_certs": CA}
if OWN:
    FILES |= {"ssl_certfile": OWN[0], "ssl_keyfile": OWN[1]}


def context() -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=CA)
    if OWN:
        made.load_cert_chain(*OWN)
    return made


def connect(port: int) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    return context().wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False)


def single() -> None:
    for protocol in (2, 3):
        client = redis.Redis(port=ENTRY, protocol=protocol, **FILES)
        assert client.ping()
        assert client.set("a", "1") and client.get("a") == b"1"
        for size in (1, 16_383, 16_384, 16_385, 1 << 20, 8 << 20):
            value = (b"%d:" % size).ljust(size, b"x")[:size]
            assert client.set("{t}large", value)
            assert client.get("{t}large") == value, size
        pipe = client.pipeline(transaction=False)
        for i in range(20_000):
            pipe.set(f"key:{i}", f"value:{i}")
            pipe.get(f"key:{i}")
        replies = pipe.execute()
        assert replies[1::2] == [b"value:%d" % i for i in range(20_000)]
        pipe = client.pipeline()
        pipe.incr("{t}n").incr("{t}n")
        assert pipe.execute()[1] % 2 == 0
        subscriber = client.pubsub()
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=10)["type"] == "subscribe"
        client.publish("news", "x" * 100_000)
        assert len(subscriber.get_message(timeout=10)["data"]) == 100_000
        client.delete("{t}large")
        client.close()


def cluster() -> None:
    for port in (ENTRY, DIRECT):
        client = RedisCluster(host="127.0.0.1", port=port, decode_responses=True, **FILES)
        ports = {node.port for node in client.get_primaries()}
        assert ports == set(range(ENTRY + 1, ENTRY + 1 + len(ports))), ports
        assert len(ports) > 1
        for i in range(500):
            assert client.set(f"key:{i}", i)
        assert all(client.get(f"key:{i}") == str(i) for i in range(500))
        client.close()
    direct = redis.Redis(port=DIRECT, **FILES)
    moved = 0
    for i in range(100):
        try:
            direct.get(f"key:{i}")
        except redis.exceptions.MovedError as error:
            assert error.port in ports, error
            moved += 1
    assert moved > 10


def ends() -> None:
    # What was sent before the end is answered, and the node says the end, too.
    for commands in (1, 5_000):
        client = connect(ENTRY)
        client.sendall(b"PING\r\n" * commands + b"QUIT\r\n")
        heard = b""
        while part := client.recv(1 << 16):
            heard += part
        assert heard == b"+PONG\r\n" * commands + b"+OK\r\n", heard[-50:]
        client.close()
    # close_notify is the end of what the client says, and not of what it hears.
    made = context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = made.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    plain = socket.create_connection(("127.0.0.1", ENTRY), timeout=30)
    while True:
        try:
            session.do_handshake()
            break
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(1 << 16))
    session.write(b"GET a\r\nPING\r\n")
    try:
        session.unwrap()
    except ssl.SSLWantReadError:
        pass
    plain.sendall(outgoing.read())
    heard = b""
    while part := plain.recv(1 << 16):
        heard += part
    assert len(heard) > 40, heard
    plain.close()
    # Records in pieces of one byte.
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = made.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    plain = socket.create_connection(("127.0.0.1", ENTRY), timeout=30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def drip() -> None:
        for byte in outgoing.read():
            plain.sendall(bytes([byte]))

    while True:
        try:
            session.do_handshake()
            break
        except ssl.SSLWantReadError:
            drip()
            incoming.write(plain.recv(1 << 16))
    drip()
    session.write(b"PING\r\n")
    drip()
    while True:
        try:
            assert session.read(100) == b"+PONG\r\n"
            break
        except ssl.SSLWantReadError:
            incoming.write(plain.recv(1 << 16))
    plain.close()


def unread() -> None:
    # Who does not read its replies is not in the way of others.
    lazy = connect(ENTRY)
    quick = redis.Redis(port=ENTRY, **FILES)
    quick.set("{t}large", b"x" * (4 << 20))
    lazy.sendall(b"GET {t}large\r\n" * 50)
    time.sleep(0.5)
    began = time.monotonic()
    for i in range(200):
        quick.set(f"quick:{i}", i)
    assert time.monotonic() - began < 5
    heard = 0
    while heard < 50 * (4 << 20):
        part = lazy.recv(1 << 20)
        assert part
        heard += len(part)
    lazy.close()
    quick.delete("{t}large")


single()
cluster()
ends()
unread()

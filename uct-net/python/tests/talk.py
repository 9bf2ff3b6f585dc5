"""Two processes talk: `talk.py serve` prints its address and echoes; `talk.py call ADDRESS TRANSPORT` checks the echo."""

import sys

import uct

LIMIT = 60
PATIENT = {"handshake_timeout": LIMIT / 2, "lane_timeout": LIMIT / 3, "connect_timeout": LIMIT}


def serve():
    with uct.Net(**PATIENT) as net, net.listen("127.0.0.1:0") as listener:
        print(listener.address, flush=True)
        with listener.accept(LIMIT) as connection:
            for message in connection:
                connection.send(message, LIMIT)


def call(address, transport):
    with uct.Net(require=transport, **PATIENT) as net, net.connect(address) as connection:
        for length in (0, 1, 8, 5000, 300_000):
            message = bytes(range(256)) * (length // 256 + 1)
            connection.send(message[:length], LIMIT)
            assert connection.recv(LIMIT) == message[:length], length
        print("over", connection.explanation["chosen"])


{"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])

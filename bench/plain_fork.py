"""Baseline of `fumehood bench`: fork and exit of a preloaded interpreter, with no confinement at all.

    python plain_fork.py WORK_FOLDER MODULE...

Imports the modules, then serves requests on descriptor 0, a stream socket. A request is its number, the length of its code and of its file,
then both; the answer is the number, the exit status and the length of the output, then the output. Each request gets a child, which
writes the file as data.csv into a folder of its own, runs the code, and leaves. Number 0 is sent once when everything is loaded.
"""

import collections
import gc
import importlib
import os
import select
import shutil
import socket
import struct
import sys
import traceback

REQUEST = struct.Struct("!QII")
ANSWER = struct.Struct("!QiI")

MOST_CHILDREN = 4 * (os.cpu_count() or 1)
"""At once; further requests wait. More would only take turns: with a hundred at once everything takes twice as long."""


def main():
    work, modules = sys.argv[1], sys.argv[2:]
    for module in modules:
        importlib.import_module(module)
    host = socket.socket(fileno=0)
    # As a zygote does: the collector would otherwise write to every object, and so copy every page.
    gc.collect()
    gc.freeze()
    host.sendall(ANSWER.pack(0, 0, 0))
    serve(host, work)


def serve(host, work):
    poll = select.epoll()
    poll.register(0, select.EPOLLIN)
    received = bytearray()
    waiting = collections.deque()
    children = {}
    while True:
        while waiting and len(children) < MOST_CHILDREN:
            number, code, file = waiting.popleft()
            fd, pid = begin(code, file, work)
            children[fd] = number, pid, bytearray()
            poll.register(fd, select.EPOLLIN)
        for fd, _ in poll.poll():
            if fd:
                piece = os.read(fd, 1 << 16)
                number, pid, output = children[fd]
                if piece:
                    output += piece
                    continue
                poll.unregister(fd)
                os.close(fd)
                del children[fd]
                _, status = os.waitpid(pid, 0)
                host.sendall(ANSWER.pack(number, os.waitstatus_to_exitcode(status), len(output)) + output)
                continue
            piece = host.recv(1 << 20)
            if not piece:
                return
            received += piece
            waiting.extend(requests(received))


def requests(received):
    """Takes whole requests out of what was received."""
    while len(received) >= REQUEST.size:
        number, code_length, file_length = REQUEST.unpack_from(received)
        middle = REQUEST.size + code_length
        end = middle + file_length
        if len(received) < end:
            return
        code, file = bytes(received[REQUEST.size : middle]), bytes(received[middle:end])
        del received[:end]
        yield number, code, file


def begin(code, file, work):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        run(code, file, work)
    os.close(writing)
    return reading, pid


def run(code, file, work):
    """Never returns."""
    status, folder = 0, None
    try:
        if file:
            folder = os.path.join(work, str(os.getpid()))
            os.mkdir(folder)
            os.chdir(folder)
            with open("data.csv", "wb") as f:
                f.write(file)
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
    except BaseException:
        status = 1
        traceback.print_exc()
    sys.stdout.flush()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(status)


main()

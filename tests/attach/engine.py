"""A scripted fake of an inference server, for tests of `perjoule attach`. It speaks HTTP/1.1 over plain sockets, so
that responses can be truncated, chunked, malformed or late.
"""
import json
import socket
import threading
import time


def sse(*events, done=True):
    text = "".join("data: " + (e if isinstance(e, str) else json.dumps(e)) + "\n\n" for e in events)
    return text + ("data: [DONE]\n\n" if done else "")


def chat_chunk(text=None, finish=None, **more):
    delta = {} if text is None else {"content": text}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


class Engine:
    """`answer(request, send)` is called for each request: request has method, path, headers, body;
    send(bytes) writes. If it returns a true value, the connection is kept alive."""

    def __init__(self, answer=None):
        self.answer = answer or self.chat
        self.requests = []
        self.cut = 0  # connections that the peer closed during a response
        self.lock = threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.tokens, self.pause, self.prompt, self.cached, self.ttft = 8, 0.005, 12, 0, 0.02
        self.reasoning = 0  # of the tokens, the first that are given apart
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        try:
            while self.one(connection, stream):
                pass
        except OSError:
            with self.lock:
                self.cut += 1
        finally:
            stream.close()
            connection.close()

    def one(self, connection, stream):
        line = stream.readline().decode("latin-1").split()
        if len(line) < 3:
            return False
        headers = {}
        while (header := stream.readline().decode("latin-1").strip()):
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while (size := int(stream.readline().split(b";")[0], 16)):
                body += stream.read(size)
                stream.readline()
            while stream.readline().strip():
                pass
        else:
            body = stream.read(int(headers.get("content-length", 0)))
        request = {"method": line[0], "path": line[1], "headers": headers, "body": body, "connection": connection}
        with self.lock:
            self.requests.append(request)
        kept = self.answer(request, connection.sendall)
        return kept and headers.get("connection", "").lower() != "close"

    @staticmethod
    def head(send, status="200 OK", kind="text/event-stream", length=None, *more):
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *more]
        lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
        send(("\r\n".join(lines) + "\r\n\r\n").encode())

    @staticmethod
    def chunk(send, data):
        data = data.encode() if isinstance(data, str) else data
        send(b"%x\r\n%s\r\n" % (len(data), data))

    def whole(self, send, value, status="200 OK", kind="application/json"):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.head(send, status, kind, len(body))
        send(body)
        return True

    def chat(self, request, send):
        """The default responses: a list of models, a stream, or a whole message."""
        if request["path"].endswith("/models"):
            return self.whole(send, {"object": "list", "data": [{"id": "m", "owned_by": "someone"}]})
        if not request["path"].endswith("/completions"):
            return self.whole(send, {"error": {"message": "no such path"}}, "404 Not Found")
        asked = json.loads(request["body"])
        tokens = asked.get("max_tokens", self.tokens)
        usage = {"prompt_tokens": self.prompt, "completion_tokens": tokens,
                 "total_tokens": self.prompt + tokens,
                 "prompt_tokens_details": {"cached_tokens": self.cached}}
        if not asked.get("stream"):
            time.sleep(self.ttft + self.pause * tokens)
            return self.whole(send, {"model": "m", "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "x " * tokens},
                 "finish_reason": "stop"}], "usage": usage})
        self.head(send)
        self.chunk(send, sse({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}, done=False))
        time.sleep(self.ttft)
        for i in range(tokens):
            chunk = chat_chunk(f"w{i} ")
            if i < self.reasoning:
                chunk["choices"][0]["delta"] = {"reasoning_content": f"w{i} "}
            self.chunk(send, sse(chunk, done=False))
            time.sleep(self.pause)
        self.chunk(send, sse(chat_chunk(None, "stop"), done=False))
        if asked.get("stream_options", {}).get("include_usage"):
            self.chunk(send, sse({"choices": [], "model": "m", "usage": usage}, done=False))
        self.chunk(send, "data: [DONE]\n\n")
        send(b"0\r\n\r\n")
        return True

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

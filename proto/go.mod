// The contract and the Go client. They are a module of their own, so that a program that uses them requires nothing that only the
// server needs, and works with a Go version that is two releases older than the server's: docs/go-client.md.
module github.com/arbe-dev/arbe/proto

go 1.24.0

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.1
	connectrpc.com/connect v1.19.2
	github.com/gorilla/websocket v1.5.0
	google.golang.org/protobuf v1.36.12
)

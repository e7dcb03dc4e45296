package rpc

import (
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/internal/fault"
)

// prefix begins the paths of all procedures of the contract.
const prefix = "/arbe.v1."

// Serves reports whether a request is for a procedure of the contract, or for one that the contract does not have.
func Serves(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, prefix) }

// methodAt returns the method at an HTTP path, or nil.
func methodAt(path string) protoreflect.MethodDescriptor {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	method, _ := found.(protoreflect.MethodDescriptor)
	return method
}

// onlyKnown passes requests for procedures of the contract on, and refuses the others as every other error is refused. The
// generated handlers would answer them with plain text.
func onlyKnown(services http.Handler) http.Handler {
	errors := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Serves(r) || methodAt(r.URL.Path) != nil {
			services.ServeHTTP(w, r)
			return
		}
		clearNext(r.Context())
		f := fault.Newf(fault.Unimplemented, correct, "this server has no procedure %.200q", r.URL.Path)
		_ = errors.Write(notFound{w}, r, WireError(r.Context(), f)) // the caller may have gone
	})
}

// notFound answers with 404 in place of 501, because the request is wrong, and not the server: its operator is alarmed by 5xx.
// For clients of Connect both are unimplemented.
type notFound struct{ http.ResponseWriter }

func (w notFound) WriteHeader(status int) {
	if status == http.StatusNotImplemented {
		status = http.StatusNotFound
	}
	w.ResponseWriter.WriteHeader(status)
}

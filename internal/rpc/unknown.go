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

// Serves reports whether a request's path has the form of a procedure, whether the contract has that procedure or not.
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

// onlyKnown passes on requests for procedures of the contract, and answers the others with an error like any other. The
// generated handlers would answer with 404 and plain text, which clients take for unimplemented. In Connect's protocol, this
// error has status 501.
func onlyKnown(services http.Handler) http.Handler {
	errors := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Serves(r) || methodAt(r.URL.Path) != nil {
			services.ServeHTTP(w, r)
			return
		}
		clearNext(r.Context())
		f := fault.Newf(fault.Unimplemented, correct, "this server has no procedure %.200q", r.URL.Path)
		_ = errors.Write(w, r, WireError(r.Context(), f)) // the caller may have gone
	})
}

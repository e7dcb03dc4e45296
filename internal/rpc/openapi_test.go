package rpc_test

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// docs/openapi.yaml has every call that does not stream, with its request and response, and no other call.
func TestOpenAPIHasEveryCall(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type body struct {
		Content map[string]struct {
			Schema struct {
				Ref string `yaml:"$ref"`
			}
		}
	}
	var page struct {
		Security []map[string][]string
		Paths    map[string]map[string]struct {
			RequestBody body `yaml:"requestBody"`
			Responses   map[string]body
		}
		Components struct{ Schemas map[string]any }
	}
	if err := yaml.Unmarshal(text, &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Security) == 0 {
		t.Error("no call asks for a token")
	}
	calls := 0
	protoregistry.GlobalFiles.RangeFilesByPackage(arbev1.File_arbe_v1_entry_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				if m.IsStreamingClient() || m.IsStreamingServer() {
					continue
				}
				calls++
				path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
				call, ok := page.Paths[path]["post"]
				if !ok {
					t.Errorf("%s is missing: run make generate", path)
					continue
				}
				takes, answers := call.RequestBody.Content["application/json"].Schema.Ref, call.Responses["200"].Content["application/json"].Schema.Ref
				if takes != "#/components/schemas/"+string(m.Input().FullName()) || answers != "#/components/schemas/"+string(m.Output().FullName()) {
					t.Errorf("%s takes %q and answers %q", path, takes, answers)
				}
				for _, message := range []protoreflect.MessageDescriptor{m.Input(), m.Output()} {
					if page.Components.Schemas[string(message.FullName())] == nil {
						t.Errorf("%s has no schema of %s", path, message.FullName())
					}
				}
			}
		}
		return true
	})
	described := 0
	for _, path := range page.Paths { // the paths of calls that stream are empty
		described += len(path)
	}
	if described != calls {
		t.Errorf("it has %d calls, and the contract %d", described, calls)
	}
}

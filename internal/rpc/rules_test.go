package rpc_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// This file has the rules of the API that docs/api.md states.

// methods returns the methods of all services.
func methods() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			of := f.Services().Get(i).Methods()
			for j := range of.Len() {
				all = append(all, of.Get(j))
			}
		}
		return true
	})
	return all
}

// wholeLists holds the lists without pages, and why each of them needs none.
var wholeLists = map[protoreflect.Name]string{
	"ListTools":           "the tools of this version",
	"ListRuntimes":        "the runtimes of this version",
	"ListModels":          "the models that a house can use",
	"ListSandboxAccounts": "one for each provider",
	"ListSecrets":         "a house has at most 200",
	"ListEdits":           "a message has at most 50",
	"ListQueue":           "the first 100, and the number of all",
	"List":                "a part of a log, by positions",
}

func TestEveryListComesInPages(t *testing.T) {
	t.Parallel()
	for _, m := range methods() {
		in, out := m.Input().Fields(), m.Output().Fields()
		if !strings.HasPrefix(string(m.Name()), "List") {
			continue
		}
		paged := in.ByName("page_size") != nil && in.ByName("page_token") != nil && out.ByName("next_page_token") != nil
		if _, whole := wholeLists[m.Name()]; paged == whole {
			t.Errorf("%s has pages: %v; is it in wholeLists: %v", m.FullName(), paged, whole)
		}
		for _, old := range []protoreflect.Name{"limit", "after", "before", "offset"} {
			if f := in.ByName(old); paged && f != nil && !f.Options().(*descriptorpb.FieldOptions).GetDeprecated() {
				t.Errorf("%s is another way to ask for pages: mark it as deprecated", f.FullName())
			}
		}
	}
}

// modifiers are the fields of updates that say how to change a thing.
var modifiers = []protoreflect.Name{"etag", "skip_model_check"}

// Without a mask, an update changes only the fields that are set: each is either optional, a message, or required. So a client of
// an older version changes nothing that it does not know.
func TestAnUpdateChangesOnlyWhatIsSet(t *testing.T) {
	t.Parallel()
	for _, m := range methods() {
		if !strings.HasPrefix(string(m.Name()), "Update") {
			continue
		}
		fields := m.Input().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if !f.HasPresence() && !slices.Contains(modifiers, f.Name()) && !required(f) {
				t.Errorf("%s: unset and empty look the same", f.FullName())
			}
		}
	}
}

// Every update takes a mask, and nothing else does, because interceptors apply the masks of updates.
func TestEveryUpdateTakesAMask(t *testing.T) {
	t.Parallel()
	for _, m := range methods() {
		mask := m.Input().Fields().ByName("update_mask")
		if masked := mask != nil && mask.Message().FullName() == "google.protobuf.FieldMask"; masked != strings.HasPrefix(string(m.Name()), "Update") {
			t.Errorf("%s takes a mask: %v", m.FullName(), masked)
		}
	}
}

// required reports whether a field cannot be empty.
func required(f protoreflect.FieldDescriptor) bool {
	rules, err := protovalidate.ResolveFieldRules(f)
	if err != nil || rules == nil {
		return false
	}
	s := rules.GetString()
	return rules.GetIgnore() != validate.Ignore_IGNORE_IF_ZERO_VALUE && (s.GetMinLen() > 0 || s.GetUuid() || len(s.GetIn()) > 0)
}

// unversioned are the updates without an etag.
var unversioned = map[protoreflect.Name]string{
	"UpdateProfile":       "a person changes only their own",
	"UpdateNotifications": "a person changes only their own",
}

// What several people may change has an etag, and so does each answer of the update.
func TestEveryUpdateTakesAnETag(t *testing.T) {
	t.Parallel()
	for _, m := range methods() {
		if _, ok := unversioned[m.Name()]; ok || !strings.HasPrefix(string(m.Name()), "Update") {
			continue
		}
		if m.Input().Fields().ByName("etag") == nil {
			t.Errorf("%s takes no etag", m.FullName())
		}
		if thing := m.Output().Fields().Get(0).Message(); thing == nil || thing.Fields().ByName("etag") == nil {
			t.Errorf("%s returns no etag", m.FullName())
		}
	}
}

// A caller may choose a UUID wherever it chooses an id.
func TestEveryChosenIDMayBeAUUID(t *testing.T) {
	t.Parallel()
	chosen := 0
	for _, m := range methods() {
		for _, name := range []protoreflect.Name{"id", "once"} {
			f := m.Input().Fields().ByName(name)
			if f == nil || f.Kind() != protoreflect.StringKind || required(f) {
				continue // it names something that exists
			}
			chosen++
			if accepts(t, m.Input(), f, strings.Repeat("x", 201)) {
				t.Errorf("%s has no limit, or the test does not look at it", f.FullName())
			}
			for _, id := range []string{uuid.NewString(), strings.ToUpper(uuid.NewString()), strings.ReplaceAll(uuid.NewString(), "-", "")} {
				if !accepts(t, m.Input(), f, id) {
					t.Errorf("%s refuses %s", f.FullName(), id)
				}
			}
		}
	}
	if chosen < 10 {
		t.Errorf("there are only %d fields with chosen ids", chosen)
	}
}

// accepts reports whether a field of a message may have a value.
func accepts(t *testing.T, of protoreflect.MessageDescriptor, f protoreflect.FieldDescriptor, value string) bool {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	must(t, err)
	request := kind.New()
	request.Set(f, protoreflect.ValueOfString(value))
	only := protovalidate.FilterFunc(func(_ protoreflect.Message, d protoreflect.Descriptor) bool { return d == f })
	return protovalidate.Validate(request.Interface(), protovalidate.WithFilter(only)) == nil
}

// unread holds the fields that are used without being named.
var unread = []protoreflect.FullName{
	"arbe.v1.EndSessionRequest.others", // the other case of the oneof that has id
}

// The server's code uses each field of the contract, so the contract promises nothing that no service implements. The payloads
// of entries are converted as a whole; TestEveryKindHasAMessageWithTheFieldsOfItsPayload checks them.
func TestEveryFieldIsKnownToAService(t *testing.T) {
	t.Parallel()
	used := usedNames(t, "..", "../../proto/arbe")
	var messages func(protoreflect.MessageDescriptors)
	payloads := arbev1.File_arbe_v1_payload_proto.Path()
	messages = func(all protoreflect.MessageDescriptors) {
		for i := range all.Len() {
			m := all.Get(i)
			if m.IsMapEntry() {
				continue
			}
			messages(m.Messages())
			for j := range m.Fields().Len() {
				if f := m.Fields().Get(j); !used[goName(f.Name())] && !slices.Contains(unread, f.FullName()) {
					t.Errorf("%s: the server neither reads nor sets it", f.FullName())
				}
			}
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(f protoreflect.FileDescriptor) bool {
		if f.Path() != payloads {
			messages(f.Messages())
		}
		return true
	})
}

// goName returns the name of a field in Go.
func goName(name protoreflect.Name) (goName string) {
	for word := range strings.SplitSeq(string(name), "_") {
		goName += strings.ToUpper(word[:1]) + word[1:]
	}
	return goName
}

const contract = `"github.com/arbe-dev/arbe/proto/arbe/v1"`

// usedNames returns the names of the fields that the code below some directories reads or sets, in files that import the contract.
// Tests and generated code do not count.
func usedNames(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	add := func(name string) {
		used[name] = true
		if field, ok := strings.CutPrefix(name, "Get"); ok {
			used[field] = true
		}
		if _, field, ok := strings.Cut(name, "_"); ok { // a case of a oneof, such as GetBotRequest_Id
			used[field] = true
		}
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == contract }) {
				return nil
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					add(n.Sel.Name)
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok {
						add(key.Name)
					}
				}
				return true
			})
			return nil
		})
		must(t, err)
	}
	return used
}

// Each thing with an etag refuses a change that was made for another version, and keeps its present one.
func TestAChangeForAnotherVersionChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, ada := t.Context(), b.ada
	th, house := ada.thread(t, &arbev1.CreateThreadRequest{}), ada.house.Id
	made, err := ada.Bots.CreateBot(ctx, &arbev1.CreateBotRequest{HouseId: house, Name: "Bot"})
	must(t, err)
	policy, err := ada.Bots.CreatePolicy(ctx, &arbev1.CreatePolicyRequest{HouseId: house, BotId: made.GetBot().GetId(), Trigger: "always"})
	must(t, err)
	got, err := ada.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: house})
	must(t, err)
	b.join(t, ada, b.bob, "member")
	members, err := ada.Houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: house})
	must(t, err)
	i := slices.IndexFunc(members.GetMembers(), func(m *arbev1.Member) bool { return m.GetAgent().GetId() == b.bob.id })
	member := members.GetMembers()[i]

	for name, c := range map[string]struct {
		etag   string
		update func(etag string, n int) (next string, err error)
	}{
		"a house": {got.GetHouse().GetEtag(), func(etag string, n int) (string, error) {
			res, err := ada.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: house, Etag: etag, Retention: &arbev1.HouseRetention{ThreadsDays: int32(n)}})
			return res.GetHouse().GetEtag(), err
		}},
		"a thread": {th.GetEtag(), func(etag string, n int) (string, error) {
			res, err := ada.Threads.UpdateThread(ctx, &arbev1.UpdateThreadRequest{Id: th.GetId(), Etag: etag, Pinned: new(n%2 == 1)})
			return res.GetThread().GetEtag(), err
		}},
		"a member": {member.GetEtag(), func(etag string, n int) (string, error) {
			role := []string{"member", "owner"}[n%2]
			res, err := ada.Houses.UpdateMember(ctx, &arbev1.UpdateMemberRequest{HouseId: house, AgentId: member.GetAgent().GetId(), Etag: etag, Role: role})
			return res.GetMember().GetEtag(), err
		}},
		"a policy": {policy.GetPolicy().GetEtag(), func(etag string, n int) (string, error) {
			res, err := ada.Bots.UpdatePolicy(ctx, &arbev1.UpdatePolicyRequest{HouseId: house, Id: policy.GetPolicy().GetId(), Etag: etag, Enabled: new(n%2 == 0)})
			return res.GetPolicy().GetEtag(), err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := c.update(c.etag, 1)
			must(t, err)
			if next == c.etag || next == "" {
				t.Fatalf("its etag was %q and is %q", c.etag, next)
			}
			_, err = c.update(c.etag, 2)
			refused(t, err, connect.CodeAborted, "since you read it")
			if arbe.Reason(err) != string(fault.Changed) {
				t.Errorf("the reason is %s", arbe.Reason(err))
			}
			again, err := c.update(next, 1)
			must(t, err)
			if again != next {
				t.Errorf("the same value has the etag %q, and then %q", next, again)
			}
			if _, err := c.update("", 2); err != nil {
				t.Errorf("without an etag: %v", err)
			}
		})
	}
}

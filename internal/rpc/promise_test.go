package rpc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The file with which make check compares the contract reveals a break, and allows an addition.
func TestThePromiseNoticesBreaks(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	buf, rules := filepath.Join(root, "proto/ts/node_modules/.bin/buf"), filepath.Join(root, ".tools/protovalidate/buf/validate/validate.proto")
	for _, needed := range []string{buf, rules} {
		if _, err := os.Stat(needed); err != nil {
			t.Skip("buf is not installed: make tools")
		}
	}
	const member = "  string role = 2;\n" // of message Member
	for name, c := range map[string]struct {
		old, replacement, says string
	}{
		"nothing":             {member, member, ""},
		"a new field":         {member, member + "  string shoe_size = 99;\n", ""},
		"a field is gone":     {member, "", `"Member" was deleted`},
		"a field has a name":  {member, "  string part = 2;\n", `changed name from "role" to "part"`},
		"a field has a type":  {member, "  int64 role = 2;\n", `changed type`},
		"a field is no field": {member, "  reserved 2;\n  reserved \"role\";\n", `"Member" was deleted`},
		"a call is gone":      {"  rpc RemoveMember(", "  rpc ExpelMember(", `RPC "RemoveMember" on service "HouseService" was deleted`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			copyFile(t, filepath.Join(root, "buf.yaml"), filepath.Join(dir, "buf.yaml"))
			copyFile(t, rules, filepath.Join(dir, ".tools/protovalidate/buf/validate/validate.proto"))
			files, err := filepath.Glob(filepath.Join(root, "proto/arbe/v1/*.proto"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				copyFile(t, file, filepath.Join(dir, "proto/arbe/v1", filepath.Base(file)))
			}
			changed := filepath.Join(dir, "proto/arbe/v1/house.proto")
			text, err := os.ReadFile(changed)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), c.old) {
				t.Fatalf("there is no %q in house.proto", c.old)
			}
			if err := os.WriteFile(changed, []byte(strings.Replace(string(text), c.old, c.replacement, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			check := exec.CommandContext(t.Context(), buf, "breaking", "--against", filepath.Join(root, "proto/promise.binpb"), "--exclude-imports")
			check.Dir = dir
			said, err := check.CombinedOutput()
			if (err == nil) != (c.says == "") || !strings.Contains(string(said), c.says) {
				t.Errorf("it ends with %v and says %q, want %q", err, said, c.says)
			}
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

package entry_test

import (
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
)

func TestNamesOfFilesInASandbox(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"plan.pdf":                    "plan-k3v9x2mq.pdf",
		"the plan (2).tar.gz":         "the-plan--2-.tar-k3v9x2mq.gz",
		"":                            "file-k3v9x2mq",
		"../../etc/passwd":            "etc-passwd-k3v9x2mq",
		".bashrc":                     "file-k3v9x2mq.bashrc",
		"-rf":                         "rf-k3v9x2mq",
		"$(reboot)\n; rm *":           "reboot----rm-k3v9x2mq",
		"Übersicht.md":                "Übersicht-k3v9x2mq.md",
		"a\xff.txt":                   "a-k3v9x2mq.txt",
		"x.averyverylongextension":    "x.averyverylongextension-k3v9x2mq",
		"dot.":                        "dot-k3v9x2mq",
		strings.Repeat("é", 80) + "x": strings.Repeat("é", 50) + "-k3v9x2mq",
	} {
		if got := entry.FileName(label, "k3v9x2mq"); got != want {
			t.Errorf("the name of %q is %q, want %q", label, got, want)
		}
	}
	chat := entry.Chat{Text: "Look.", Attachments: []entry.Attachment{{ArtifactID: "k3v9x2mq", Name: "plan.pdf", Size: 12_000}}}
	if got := chat.Told(); got != "Look.\n[file: plan.pdf, 12 kB, ~/files/plan-k3v9x2mq.pdf]" {
		t.Errorf("an agent reads %q", got)
	}
	chat.Attachments[0].Size = 20 << 20
	if got := chat.Told(); got != "Look.\n[file: plan.pdf, 21.0 MB, ~/files/plan-k3v9x2mq.pdf (it is large, so it may come there later)]" {
		t.Errorf("of a large file, an agent reads %q", got)
	}
}

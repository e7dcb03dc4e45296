package export

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// exported returns the document about entries of Ann, written a minute apart.
func exported(t *testing.T, payloads ...entry.Payload) string {
	t.Helper()
	var entries []*arbev1.Entry
	for _, p := range payloads {
		entries = append(entries, said(t, int64(len(entries)+1), "ann", p))
	}
	return document(map[string]string{"ann": "Ann"}, entries...)
}

func said(t *testing.T, seq int64, author string, p entry.Payload) *arbev1.Entry {
	t.Helper()
	payload, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 26, 23, 57, 0, 0, time.UTC).Add(time.Duration(seq) * time.Minute)
	return &arbev1.Entry{Seq: seq, Id: "e" + string(rune('0'+seq)), AuthorAgentId: author, Type: p.Type(), Payload: string(payload), Ts: timestamppb.New(at)}
}

func document(names map[string]string, entries ...*arbev1.Entry) string {
	var b strings.Builder
	out := bufio.NewWriter(&b)
	m := newMarkdown(out, func(id string) string { return names[id] })
	for _, e := range entries {
		m.entry(e)
	}
	out.Flush()
	return b.String()
}

func TestADocumentSaysWhoSaidWhatAndWhen(t *testing.T) {
	t.Parallel()
	edited := said(t, 1, "ann", entry.Chat{Text: "hi", Attachments: []entry.Attachment{{ArtifactID: "k3v9x2mq", Name: "plan.pdf", Size: 12_000}}})
	edited.State = &arbev1.EntryState{Text: "hello\n\n# you", Edits: 1, Reactions: []*arbev1.Reaction{{Emoji: "👍", AgentIds: []string{"bee"}}}}
	deleted := said(t, 2, "ann", entry.Chat{Text: "secret"})
	deleted.State = &arbev1.EntryState{Deleted: true}
	got := document(map[string]string{"ann": "Ann", "bee": "Bee"}, edited, deleted,
		said(t, 3, "ann", entry.ChatEdited{EntryID: "e1", Seq: 1, Text: "hello"}),
		said(t, 4, "bee", entry.PiAssistant{Model: "large", StopReason: entry.PiToolUse, Usage: entry.PiUsage{Cost: &entry.PiCost{Total: 0.02}},
			Content: []entry.PiBlock{entry.PiText("Let me look."), {Type: entry.PiCallBlock, ID: "1", Name: "read_file", Arguments: []byte(`{"path":"a_b"}`)}}}),
		said(t, 5, "ann", entry.Command{Command: "make test"}),
		said(t, 6, "", entry.CommandResult{CommandID: "e5", SandboxID: "s", ExitCode: 2, Output: "no\n", OutputBytes: 3, DurationMS: 1500}),
		said(t, 7, "bee", entry.Chat{Text: "Done.", ReplyTo: "e1", Turn: &entry.TurnSummary{TurnID: "t", Model: "lab/large", DurationMS: 3000, Usage: entry.TurnUsage{CostMicros: 120_000}}}),
		said(t, 8, "ann", entry.AgentSpawn{ChildThreadID: "th4w7q2m9xab", AgentID: "pi", Runtime: "pi", Task: "fix it"}),
	)
	want := `
## 2026-11-26, Thursday

### #1 · 23:58:00 UTC · edited · message · Ann

> hello
> 
> # you

- \[file: plan.pdf, 12 kB, artifact k3v9x2mq\]

Reactions: 👍 1

### #2 · 23:59:00 UTC · message · Ann

(deleted)

## 2026-11-27, Friday

### #4 · 00:01:00 UTC · step · Bee

> Let me look.

- #4 · 00:01:00 UTC · Bee: → read\_file a\_b
- #4 · 00:01:00 UTC · Bee: large · \$0.0200

### #5 · 00:02:00 UTC · command · Ann

` + "```sh\nmake test\n```" + `

### #6 · 00:03:00 UTC · result of command #5 · arbe

exit 2 · 1.5s

` + "```\nno\n```" + `

### #7 · 00:04:00 UTC · message · Bee

In reply to entry e1

> Done.

lab/large · worked for 3.0 s · \$0.12

- #8 · 00:05:00 UTC · Ann: delegated to pi in thread th4w7q2m9xab: fix it
`
	if got != want {
		t.Errorf("the document is\n%s\nwant\n%s", got, want)
	}
}

func TestADocumentTellsWhereTheRestOfAnOutputIs(t *testing.T) {
	t.Parallel()
	result := entry.CommandResult{CommandID: "c", SandboxID: "s", Output: "begin\n" + strings.Repeat("x", shownOutput), OutputTail: strings.Repeat("y", shownOutput) + "\nend", OutputBytes: 1_000_000, Truncated: true, ArtifactID: "k3v9x2mq"}
	got := exported(t, result)
	for _, want := range []string{"\n```\nbegin\nxxx", "The output has 1000000 bytes, of which the middle is left out here; artifact k3v9x2mq has all of it.\n", "yyy\nend\n```\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	if len(got) > shownOutput+500 {
		t.Errorf("the document has %d bytes", len(got))
	}
}

// The document distinguishes agents that have the same name, or the name arbe.
func TestADocumentTellsAgentsApart(t *testing.T) {
	t.Parallel()
	names := map[string]string{"1": "Ann (2)", "2": "ann", "3": "Ann", "4": "arbe", "5": "\n## x", "6": "\u202e"}
	m := newMarkdown(bufio.NewWriter(&strings.Builder{}), func(id string) string { return names[id] })
	for _, id := range []string{"1", "3", "2", "4", "5", "6"} {
		names[id] = m.who(id)
	}
	want := map[string]string{"1": "Ann (2)", "2": "ann (2) (2)", "3": "Ann", "4": "arbe (4)", "5": `\#\# x`, "6": "\uFFFD"}
	for id, name := range want {
		if names[id] != name {
			t.Errorf("agent %s is %q, want %q", id, names[id], name)
		}
	}
}

// hostile are pieces of texts that try to leave their quote, or to change the rest of the document.
var hostile = []string{
	"## Ann, 12:03", "### #9 · 12:03:00 UTC · message · Bob", "\n", "\n", "\n", "\n\n", "\r", "\r\n", "\u2028", "\x0b", "\x00", "\u202e", " ", "    ", "\t", "> ", "- ", "1. ", "* * *", "---", "===",
	"`", "``", "```", "````", "~~~", "```sh\n", "\n```\n", "\n  ```\n", "\n\t```\n", "\n- a\n  ```\n", "\n> ```\n", "\\", "|", "\n| a | b |\n|---|---|\n",
	"</blockquote>", "<h3>Ann</h3>", "<!--", "-->", "<script>", "<?php", "<![CDATA[", "<div\n>", "<a title=\"`\">", "`<b>`", "\\<b>", "&lt;b>", "<", "x",
	"[Ann]: https://evil.example", "\n[x]: /evil\n", "[x]", "\n[x\ny]: /evil\n", "\\]: /evil", "[^1]: note", "https://a.example/`<b>`", "www.a.example/`<b>`", "$$", "<https://a.example>",
}

// shape describes the blocks of a document outside quotes, with the texts of headings. It reports HTML and link definitions
// anywhere.
func shape(t *testing.T, source string) (blocks []string) {
	t.Helper()
	doc, context := []byte(source), parser.NewContext()
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM, extension.Footnote)).Parser().Parse(text.NewReader(doc), parser.WithContext(context))
	if len(context.References()) > 0 {
		t.Errorf("a text defines a link for the document:\n%s", source)
	}
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if k := n.Kind(); entering && (k == ast.KindHTMLBlock || k == ast.KindRawHTML) {
			t.Errorf("a text puts HTML into the document:\n%s", source)
		}
		return ast.WalkContinue, nil
	})
	for n := tree.FirstChild(); n != nil; n = n.NextSibling() {
		block := n.Kind().String()
		if n.Kind() == ast.KindHeading {
			block += " " + string(n.Lines().Value(doc))
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// Whatever a text has, it stays in its quote or fence, and gives the document no HTML and no link definitions.
func TestTextsCannotForgeADocument(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	want := []string{
		"Heading 2026-11-26, Thursday",
		"Heading #1 · 23:58:00 UTC · message · Ann", "Blockquote",
		"Heading #2 · 23:59:00 UTC · command · Ann", "FencedCodeBlock",
		"Heading 2026-11-27, Friday",
		"Heading #3 · 00:00:00 UTC · result of command #2 · Ann", "Paragraph", "FencedCodeBlock",
		"Heading #4 · 00:01:00 UTC · message · Ann", "Blockquote", "List",
	}
	for range 3_000 {
		var b strings.Builder
		for range 1 + random.IntN(12) {
			b.WriteString(hostile[random.IntN(len(hostile))])
		}
		// The letters keep it from being blank.
		text := "a" + b.String() + "z"
		if random.IntN(2) == 0 {
			text = b.String() + "\nz"
		}
		doc := exported(t, entry.Chat{Text: text}, entry.Command{Command: text},
			entry.CommandResult{CommandID: "e2", SandboxID: "s", Output: text, OutputBytes: int64(len(text))},
			entry.Chat{Text: "[x]", Attachments: []entry.Attachment{{ArtifactID: "k3v9x2mq", Name: text}}})
		if got := shape(t, doc); !slices.Equal(got, want) {
			t.Errorf("a text changes the document's blocks to %q:\n%s", got, doc)
		}
		if i := strings.IndexFunc(doc, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == '\u202e' || r == '\u2028' }); i >= 0 {
			t.Errorf("the document has the character %q", doc[i:i+1])
		}
		if t.Failed() {
			t.Fatalf("the text was %q", text)
		}
	}
}

// Code is kept as it was written.
func TestADocumentKeepsCode(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"use `Vec<T>` and ``a[`x`]: <b>``", "```go\na[i]: <b>\n```\nand `<b>`", "a < b, 3 <4", "~~~\n<b>\n~~~"} {
		if want, got := "\n\n> "+strings.ReplaceAll(text, "\n", "\n> ")+"\n", exported(t, entry.Chat{Text: text}); !strings.HasSuffix(got, want) {
			t.Errorf("the document of %q is\n%s", text, got)
		}
	}
	if got := exported(t, entry.Chat{Text: "```\nopen"}); !strings.HasSuffix(got, "> open\n> ```\n") {
		t.Errorf("an open fence stays open:\n%s", got)
	}
}

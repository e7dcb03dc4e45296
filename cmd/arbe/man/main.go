// Command man writes arbe's manual pages from the output of arbe help --json --all: one page for each verb and group of verbs
// in man1, and one for each topic in man7. make release packs them. The text of help is made for terminals of any width and
// not for roff. So its paragraphs become paragraphs that man fills, and indented lines stay as they are.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// page is the help of a verb, a group of verbs or a topic.
type page struct {
	Name, Usage, Short, Long, Example string
	Flags                             []option
	Verbs, Topics                     []struct{ Name, Short string }
}

type option struct{ Name, Short, Type, Default, Usage string }

// manual is all pages together.
type manual struct {
	arbe, out, version, date string
	// general are the flags that every verb has. Only the page of arbe describes them.
	general map[string]bool
}

func main() {
	log.SetFlags(0)
	var m manual
	flag.StringVar(&m.arbe, "arbe", "arbe", "program whose help becomes the manual")
	flag.StringVar(&m.out, "out", "", "directory for man1 and man7")
	flag.StringVar(&m.version, "version", "", "version of arbe that the pages describe")
	flag.StringVar(&m.date, "date", "", "date of that version, such as 2026-11-26")
	flag.Parse()
	if m.out == "" || flag.NArg() > 0 {
		log.Fatal("usage: man -out DIRECTORY [-arbe PROGRAM] [-version VERSION] [-date DATE]")
	}
	if err := m.write(); err != nil {
		log.Fatal(err)
	}
}

// write writes the pages about all verbs and topics. The page of arbe comes first.
func (m *manual) write() error {
	text, err := exec.Command(m.arbe, "help", "--json", "--all").Output()
	if err != nil {
		return fmt.Errorf("%s help --json --all: %w", m.arbe, err)
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var about page
		if err := d.Decode(&about); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if m.general == nil {
			m.general = map[string]bool{}
			for _, f := range about.Flags {
				m.general[f.Name] = f.Name != "version"
			}
		}
		section := 1
		if about.Usage == "" {
			section = 7
		}
		dir := filepath.Join(m.out, fmt.Sprintf("man%d", section))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		words := strings.Fields(about.Name)[1:]
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d", nameOf(words), section)), []byte(m.roff(about, words, section)), 0o644); err != nil {
			return err
		}
	}
}

// nameOf returns the name of a page: arbe-thread-list.
func nameOf(words []string) string { return strings.Join(append([]string{"arbe"}, words...), "-") }

func (m *manual) roff(about page, words []string, section int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.TH "%s" %d "%s" "arbe %s" "arbe"`, strings.ToUpper(escape(nameOf(words))), section, escape(m.date), escape(m.version))
	line(".SH NAME\n%s \\- %s", escape(nameOf(words)), escape(about.Short))
	if about.Usage != "" {
		line(".SH SYNOPSIS\n.B %s", escape(about.Name))
		line("%s", escape(strings.TrimSpace(strings.TrimPrefix(about.Usage, about.Name))))
	}
	line(".SH DESCRIPTION")
	if about.Long == "" {
		about.Long = about.Short + "."
	}
	b.WriteString(paragraphs(about.Long))
	if len(about.Verbs) > 0 {
		line(".SH COMMANDS")
		for _, v := range about.Verbs {
			line(".TP\n.B %s\n%s", escape(v.Name), escape(v.Short))
		}
	}
	m.options(line, about, len(words) == 0)
	if about.Example != "" {
		line(".SH EXAMPLES\n.nf\n%s\n.fi", verbatim(about.Example))
	}
	line(".SH SEE ALSO")
	line("%s", escape(strings.Join(related(about, words), ",\n")))
	return b.String()
}

// options describes the flags of a page. The page of arbe has the flags of every verb.
func (m *manual) options(line func(string, ...any), about page, whole bool) {
	if len(about.Flags) == 0 {
		return
	}
	line(".SH OPTIONS")
	for _, f := range about.Flags {
		if m.general[f.Name] && !whole {
			continue
		}
		head := `\fB\-\-` + escape(f.Name) + `\fR`
		if f.Short != "" {
			head = `\fB\-` + escape(f.Short) + `\fR, ` + head
		}
		if f.Type != "bool" {
			head += ` \fI` + escape(f.Type) + `\fR`
		}
		line(".TP\n%s\n%s", head, escape(f.Usage))
	}
	if !whole {
		line(".PP\nEvery verb also takes the options of\n.BR arbe (1).")
	}
}

// related returns the pages around a page: those above and below it and, for the page of arbe, the topics.
func related(about page, words []string) (pages []string) {
	for i := range words {
		pages = append(pages, nameOf(words[:i])+"(1)")
	}
	for _, v := range about.Verbs {
		pages = append(pages, nameOf(append(words[:len(words):len(words)], v.Name))+"(1)")
	}
	for _, t := range about.Topics {
		pages = append(pages, nameOf([]string{t.Name})+"(7)")
	}
	return pages
}

// paragraphs converts text for a terminal to roff.
func paragraphs(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			b.WriteString(".PP\n.nf\n" + verbatim(paragraph) + "\n.fi\n")
		} else {
			b.WriteString(".PP\n" + verbatim(paragraph) + "\n")
		}
	}
	return b.String()
}

// verbatim escapes each line of a text.
func verbatim(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = escape(lines[i])
	}
	return strings.Join(lines, "\n")
}

// escape makes text safe in roff: roff takes nothing in it for a request or an escape, and a hyphen stays a hyphen that
// people can type.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

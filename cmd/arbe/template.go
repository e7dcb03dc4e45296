package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/template/parse"
	"unicode/utf8"

	template "github.com/DataDog/datadog-agent/pkg/template/text"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// This file applies the Go templates of --template. The standard library's text/template calls methods by their names, so the
// linker would keep every exported method of every package; the fork used here calls none. The JSON has none either.

// The limits of a template for one value. They are far above what output for people needs, and far below what harms a machine.
const (
	// maxSteps limits the rounds of all loops and the calls of templates. So many take some seconds.
	maxSteps = 10_000_000
	// maxDepth limits calls of templates within each other.
	maxDepth = 1000
	// maxText limits the output, a table, and the text that a function makes, in bytes.
	maxText = 16 << 20
)

// goTemplate prints the output of a Go template for each value of --json. The template reads nothing but that value.
type goTemplate struct {
	parsed *template.Template
	// colours reports whether the person wants colours in a stream.
	colours func(stream any) bool

	mu sync.Mutex
	// What follows is about the value that is being printed.
	ctx          context.Context
	out          io.Writer
	printed      strings.Builder
	table        [][]string
	tableSize    int // in bytes
	steps, depth int
}

// newTemplate parses a template. Its error is one sentence about what is wrong and where.
func newTemplate(text string, colours func(stream any) bool) (*goTemplate, error) {
	if text == "" {
		return nil, errors.New("the template is empty")
	}
	t := &goTemplate{colours: colours}
	parsed, err := t.parse(text)
	if err != nil {
		return nil, placed(text, err, func(part string) error { _, err := t.parse(part); return err })
	}
	t.parsed = parsed
	step, enter, leave := t.call("arbe_step"), t.call("arbe_enter"), t.call("arbe_leave")
	for _, named := range parsed.Templates() {
		eachLoop(named.Root, func(body *parse.ListNode) { body.Nodes = append([]parse.Node{step}, body.Nodes...) })
		named.Root.Nodes = append(append([]parse.Node{enter}, named.Root.Nodes...), leave)
	}
	return t, nil
}

func (t *goTemplate) parse(text string) (*template.Template, error) {
	return template.New("template").Funcs(t.functions()).Parse(text)
}

// call returns the part of a template that calls a function.
func (t *goTemplate) call(function string) parse.Node {
	return template.Must(t.parse("{{" + function + "}}")).Root.Nodes[0]
}

// eachLoop calls visit with the body of each loop below a list, inner loops first.
func eachLoop(list *parse.ListNode, visit func(body *parse.ListNode)) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *parse.IfNode:
			eachLoop(node.List, visit)
			eachLoop(node.ElseList, visit)
		case *parse.WithNode:
			eachLoop(node.List, visit)
			eachLoop(node.ElseList, visit)
		case *parse.RangeNode:
			eachLoop(node.List, visit)
			eachLoop(node.ElseList, visit)
			visit(node.List)
		}
	}
}

// parseError matches the message of the parser, which knows the line.
var parseError = lazyregexp.New(`(?s)^template: template:(\d+): (.*)$`)

// placed adds the place to an error of the parser, which knows only the line. It parses longer and longer beginnings of the text.
// The first one with the same error ends with the wrong action. An error about the whole text is placed at its end.
func placed(text string, err error, parse func(part string) error) error {
	message, at := err.Error(), len(text)
	for end := 0; !strings.HasSuffix(message, "unexpected EOF"); {
		next := strings.Index(text[end:], "}}")
		if next < 0 {
			break
		}
		end += next + len("}}")
		if part := parse(text[:end]); part != nil && part.Error() == message {
			at = max(0, strings.LastIndex(text[:end], "{{"))
			break
		}
	}
	if found := parseError.FindStringSubmatch(message); found != nil {
		message = found[2]
	}
	before := text[:at]
	line, column := 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return fmt.Errorf("%s at line %d, column %d", message, line, column)
}

// print prints the output of the template for a value in one write, so that a reader gets complete lines. Output that does not
// end a line gets a newline. A value that prints nothing gets no line. ctx ends a template that runs for long.
func (t *goTemplate) print(ctx context.Context, out io.Writer, view any) error {
	value, err := plainJSON(view)
	if err != nil {
		return err
	}
	terminal := isTerminal(out)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ctx, t.out, t.steps, t.depth, t.table, t.tableSize = ctx, out, 0, 0, nil, 0
	t.printed.Reset()
	if err := t.parsed.Execute((*bounded)(t), templateValue(value, terminal)); err != nil {
		return t.unformatted(err)
	}
	if _, err := (*bounded)(t).Write([]byte(t.endTable())); err != nil {
		return t.unformatted(err)
	}
	text := t.printed.String()
	if terminal {
		text = printableColours(text)
	}
	if text == "" {
		return nil
	}
	_, err = io.WriteString(out, strings.TrimSuffix(text, "\n")+"\n")
	return err
}

// bounded keeps the output of a template, up to a limit.
type bounded goTemplate

func (b *bounded) Write(p []byte) (int, error) {
	if b.printed.Len()+len(p) > maxText {
		return 0, fmt.Errorf("it prints more than %d MB", maxText>>20)
	}
	return b.printed.Write(p)
}

// step is called in each round of a loop.
func (t *goTemplate) step() (string, error) {
	if t.steps++; t.steps > maxSteps {
		return "", fmt.Errorf("it takes more than %d steps", maxSteps)
	}
	return "", t.ctx.Err()
}

// enter and leave are called where a template begins and ends.
func (t *goTemplate) enter() (string, error) {
	if t.depth++; t.depth > maxDepth {
		return "", fmt.Errorf("templates call each other more than %d deep", maxDepth)
	}
	return t.step()
}

func (t *goTemplate) leave() string {
	t.depth--
	return ""
}

// executing matches the message about a template that failed: its line, the offset in the line, the part and the reason.
var executing = lazyregexp.New(`(?s)^template: [^ ]*:(\d+):(\d+): executing "[^"]*" at (<.*>): (?:error calling [a-z_]+: )?(.*)$`)

// unformatted explains why a template could not be applied to a value, as unfiltered does for an expression.
func (t *goTemplate) unformatted(err error) error {
	if t.ctx.Err() != nil {
		return fault.New(fault.Canceled, "--template was interrupted", "").Because(t.ctx.Err())
	}
	message := strings.TrimPrefix(err.Error(), "template: ")
	if found := executing.FindStringSubmatch(err.Error()); found != nil {
		message = found[4]
		if !strings.HasPrefix(found[3], "<arbe_") {
			message = fmt.Sprintf("%s at line %s: %s", found[3], found[1], message)
		}
	}
	return fault.Newf(fault.Internal, "correct the template; the command's effects remain", "--template cannot be applied to this JSON: %s", shortened(message)).Because(err)
}

// templateValue returns a value of JSON as templates compare and print it: whole numbers as int. On a terminal its text has no
// control characters, so that all colours are the template's.
func templateValue(value any, terminal bool) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return int(whole)
		}
		fraction, err := value.Float64()
		if err != nil {
			return value.String()
		}
		return fraction
	case string:
		if terminal {
			return entry.Printable(value)
		}
	case []any:
		for i := range value {
			value[i] = templateValue(value[i], terminal)
		}
	case map[string]any:
		for name := range value {
			value[name] = templateValue(value[name], terminal)
		}
	}
	return value
}

// printableColours is like [entry.Printable], but keeps colours.
func printableColours(text string) string {
	var b strings.Builder
	for {
		at := entry.Colours.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(entry.Printable(text))
			return b.String()
		}
		b.WriteString(entry.Printable(text[:at[0]]) + text[at[0]:at[1]])
		text = text[at[1]:]
	}
}

// templateFlag is the value of --template. It parses the template while the command line is parsed, so that a wrong one is
// refused before the verb begins, and it implies --json.
type templateFlag struct {
	app  *app
	text string
}

// String implements [github.com/spf13/pflag.Value].
func (f *templateFlag) String() string { return f.text }

// Type implements [github.com/spf13/pflag.Value].
func (f *templateFlag) Type() string { return "string" }

// Set implements [github.com/spf13/pflag.Value].
func (f *templateFlag) Set(text string) error {
	f.app.json, f.text = true, text // first, so that the error is JSON too
	t, err := newTemplate(text, f.app.colours)
	if err != nil {
		return &wrongFilter{err}
	}
	f.app.filter = t
	return nil
}

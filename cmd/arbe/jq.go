package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/itchyny/gojq"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
)

// print prints the results of the expression for a value: strings as they are, null as an empty line, and everything else
// as a line of JSON, as GitHub's gh does. Each result is one write, so that a reader gets complete lines at once. An
// expression may run forever; ctx ends it.
func (f *filter) print(ctx context.Context, out io.Writer, view any) error {
	value, err := plainJSON(view)
	if err != nil {
		return err
	}
	terminal := isTerminal(out)
	for results := f.code.RunWithContext(ctx, value); ; {
		result, more := results.Next()
		if !more {
			return nil
		}
		var line string
		switch result := result.(type) {
		case error:
			if halt, ok := errors.AsType[*gojq.HaltError](result); ok && halt.Value() == nil { // the function halt
				return nil
			}
			return unfiltered(ctx, result)
		case nil:
		case string:
			line = result
		default:
			text, err := gojq.Marshal(result)
			if err != nil {
				return unfiltered(ctx, err)
			}
			line = string(text)
		}
		if terminal {
			line = entry.Printable(line)
		}
		if _, err := io.WriteString(out, line+"\n"); err != nil {
			return err
		}
	}
}

// maxReason limits the shown part of the reason for a failure, in characters.
const maxReason = 300

// unfiltered explains why an expression could not be applied to a value. The verb has already done its work, so the exit
// code is not that of a mistake in the command line.
func unfiltered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.New(fault.Canceled, "--jq was interrupted", "").Because(ctx.Err())
	}
	return fault.Newf(fault.Internal, "correct the expression; the command's effects remain", "--jq cannot be applied to this JSON: %s", shortened(err.Error())).Because(err)
}

// shortened returns at most maxReason characters of a reason, which may quote a whole value.
func shortened(reason string) string {
	why := []rune(reason)
	if len(why) > maxReason {
		why = append(why[:maxReason], '…')
	}
	return string(why)
}

// plainJSON returns a view as the maps, slices and scalars that --json would print. Numbers stay exact.
func plainJSON(view any) (value any, err error) {
	var text bytes.Buffer
	if err := export.EncodeJSON(&text, view); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(&text)
	dec.UseNumber()
	return value, dec.Decode(&value)
}

// filterFlag is the value of --jq. It compiles the expression while the command line is parsed, so that a wrong one is refused
// before the verb begins, and it implies --json.
type filterFlag struct {
	app        *app
	expression string
}

// String implements [github.com/spf13/pflag.Value].
func (f *filterFlag) String() string { return f.expression }

// Type implements [github.com/spf13/pflag.Value].
func (f *filterFlag) Type() string { return "string" }

// Set implements [github.com/spf13/pflag.Value].
func (f *filterFlag) Set(expression string) error {
	f.app.json, f.expression = true, expression // first, so that the error is JSON too
	compiled, err := newFilter(expression)
	if err != nil {
		return &wrongFilter{err}
	}
	f.app.filter = compiled
	return nil
}

// wrongFilter is the error of an expression or a template that cannot be compiled.
type wrongFilter struct{ error }

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
)

// functions returns what a template can call besides the language's own functions: the functions of GitHub's gh. They treat
// text that is not set as empty.
func (t *goTemplate) functions() template.FuncMap {
	return template.FuncMap{
		"timeago": timeAgo,
		"timefmt": timeFormat,
		"truncate": func(columns int, value any) (string, error) {
			text, err := textOf(value)
			return recoloured(text, func(plain string) string { return cutTo(plain, max(0, columns)) }), err
		},
		"join": func(between string, list []any) (string, error) {
			texts, err := textsOf(list)
			return within(strings.Join(texts, between), err)
		},
		"pluck": pluck,
		"color": color,
		"autocolor": func(style string, value any) (string, error) {
			if !t.colours(t.out) {
				return textOf(value)
			}
			return color(style, value)
		},
		"tablerow":    t.tableRow,
		"tablerender": t.endTable,

		// These can make long text of short text.
		"print":    func(values ...any) (string, error) { return within(fmt.Sprint(values...), nil) },
		"println":  func(values ...any) (string, error) { return within(fmt.Sprintln(values...), nil) },
		"printf":   func(format string, values ...any) (string, error) { return within(fmt.Sprintf(format, values...), nil) },
		"html":     func(values ...any) (string, error) { return within(template.HTMLEscaper(values...), nil) },
		"js":       func(values ...any) (string, error) { return within(template.JSEscaper(values...), nil) },
		"urlquery": func(values ...any) (string, error) { return within(template.URLQueryEscaper(values...), nil) },

		// These are called by what newTemplate adds.
		"arbe_step": t.step, "arbe_enter": t.enter, "arbe_leave": t.leave,
	}
}

func within(text string, err error) (string, error) {
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("the text has more than %d MB", maxText>>20)
	}
	return text, err
}

// textOf returns a scalar of JSON as text.
func textOf(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case bool, int, float64:
		return fmt.Sprint(value), nil
	}
	return "", errors.New("a list or an object is not text")
}

func textsOf(list []any) ([]string, error) {
	texts := make([]string, len(list))
	for i, value := range list {
		var err error
		if texts[i], err = textOf(value); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// pluck returns a field of each object of a list.
func pluck(field string, list []any) ([]any, error) {
	found := make([]any, len(list))
	for i, value := range list {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("number %d of the list is not an object", i)
		}
		found[i] = object[field]
	}
	return found, nil
}

// timeOf parses a time of the JSON. A time that is not set is zero.
func timeOf(value any) (time.Time, error) {
	text, err := textOf(value)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2006-01-02T15:04:05Z", shortened(text))
	}
	return at, nil
}

func timeAgo(value any) (string, error) {
	at, err := timeOf(value)
	if err != nil || at.IsZero() {
		return "", err
	}
	return age(at), nil
}

func timeFormat(layout string, value any) (string, error) {
	at, err := timeOf(value)
	if err != nil || at.IsZero() {
		return "", err
	}
	return within(at.Format(layout), nil)
}

// colourCodes are the styles of the functions color and autocolor.
var colourCodes = map[string]string{
	"black": "30", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36", "white": "37", "gray": "90",
	"bold": "1", "dim": "2", "underline": "4",
}

// color returns text in a style, such as "red" or "red+bold".
func color(style string, value any) (string, error) {
	var codes []string
	for name := range strings.SplitSeq(style, "+") {
		code, ok := colourCodes[name]
		if !ok {
			return "", fmt.Errorf("there is no colour %q; use black, red, green, yellow, blue, magenta, cyan, white or gray, and bold, dim or underline after a +", shortened(name))
		}
		codes = append(codes, code)
	}
	text, err := textOf(value)
	if text == "" || err != nil {
		return "", err
	}
	return within("\x1b["+strings.Join(codes, ";")+"m"+text+uncoloured, nil)
}

// tableRow adds a row to the table, which tablerender prints.
func (t *goTemplate) tableRow(cells ...any) (string, error) {
	row, err := textsOf(cells)
	size := 0
	for i, cell := range row {
		row[i] = strings.NewReplacer("\n", " ", "\t", " ", "\r", "").Replace(cell)
		size += len(cell)
	}
	if err != nil {
		return "", err
	}
	if t.tableSize += size; t.tableSize > maxText {
		return "", fmt.Errorf("the table has more than %d MB", maxText>>20)
	}
	t.table = append(t.table, row)
	return "", nil
}

// endTable returns the table and begins another one. On a terminal it fits the width. Elsewhere nothing is cut.
func (t *goTemplate) endTable() string {
	rows := t.table
	t.table, t.tableSize = nil, 0
	widths := widthsOf(rows)
	fit(widths, make([]bool, len(widths)), columnsOf(t.out))
	return layOut(rows, widths)
}

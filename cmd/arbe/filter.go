package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"
)

// filter is a jq expression that is applied to every value of --json. It reads nothing but that value: no environment,
// no files, no modules, no further input. gojq offers those only as options.
type filter struct{ code *gojq.Code }

// newFilter compiles an expression. Its error is one sentence about what is wrong and, where the parser knows it, where.
func newFilter(expression string) (*filter, error) {
	query, err := gojq.Parse(expression)
	if wrong, ok := errors.AsType[*gojq.ParseError](err); ok {
		// The parser reports the end of the token that it could not take.
		before := expression[:max(0, min(wrong.Offset, len(expression))-len(wrong.Token))]
		line, column := 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
		return nil, fmt.Errorf("%w at line %d, column %d", err, line, column)
	} else if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, err
	}
	return &filter{code}, nil
}

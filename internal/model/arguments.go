package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kaptinlin/jsonschema"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

// CheckArguments checks the arguments of a call against its tool's schema. The error is a [fault.Invalid] whose text is
// meant for the model: it names each argument that is wrong, and why. References to other documents are not followed.
func CheckArguments(tool Tool, arguments json.RawMessage) error {
	wrong := func(format string, args ...any) error {
		return fault.Newf(fault.Invalid, "call the tool again with arguments that fit its schema", "%s: "+format, append([]any{tool.Name}, args...)...)
	}
	trimmed := bytes.TrimSpace(arguments)
	if len(trimmed) == 0 {
		trimmed = []byte("{}")
	}
	if problem := notObject(trimmed); problem != "" {
		return wrong("%s", problem)
	}
	if len(bytes.TrimSpace(tool.Schema)) == 0 {
		return nil
	}
	schema, size, err := compiled(tool.Schema)
	if err != nil {
		return fault.Newf(fault.Internal, "report it to whoever wrote the tool", "the schema of the tool %s is wrong", tool.Name).Because(err)
	}
	if nodes := countNodes(trimmed); nodes > maxChecks/size {
		return wrong("the arguments have %d values, and at most %d can be checked", nodes, maxChecks/size)
	}
	result := schema.ValidateJSON(trimmed)
	if result.IsValid() {
		return nil
	}
	return wrong("%s", wrongs(result))
}

// notObject returns why text cannot be the arguments of a call, or "".
func notObject(trimmed []byte) string {
	var written string
	switch {
	case trimmed[0] == '"' && json.Unmarshal(trimmed, &written) == nil && !deep(written): // how an answer stores arguments that are not JSON
		return "the arguments are not JSON: " + entry.Clip(written, 200)
	case deep(cmp.Or(written, string(trimmed))):
		return fmt.Sprintf("the arguments are nested more than %d levels deep", maxDepth)
	case !json.Valid(trimmed):
		return "the arguments are not JSON"
	case trimmed[0] != '{':
		return "the arguments are not an object"
	}
	return ""
}

// wrongs lists why a result is not valid, each reason once, in one text.
func wrongs(result *jsonschema.EvaluationResult) string {
	var why []string
	collect(result, "", &why)
	slices.Sort(why)
	why = slices.Compact(why)
	if len(why) > 8 {
		why = append(why[:8], fmt.Sprintf("and %d more", len(why)-8))
	}
	return entry.Clip(strings.Join(why, "; "), 1000)
}

// maxChecks limits the work of checking arguments: each part of a schema may be applied to each value of the arguments.
const maxChecks = 10_000_000

// compiled returns a schema in the form that providers get ([sendable]), compiled to check arguments, and its number of
// parts. The original schema may refer to itself so often that checking a single value never ends.
func compiled(schema json.RawMessage) (_ *jsonschema.Schema, parts int, err error) {
	sent, err := sendable(schema)
	if err != nil {
		return nil, 0, err
	}
	text, err := json.Marshal(sent)
	if err != nil {
		return nil, 0, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.Loaders = nil // a schema must not make the server fetch or read anything
	s, err := compiler.Compile(text)
	return s, countNodes(text), err
}

// countNodes estimates the number of values in a JSON text; at least one.
func countNodes(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

// maxDepth is how deep arguments may be nested. Go's decoder refuses more than 10,000 levels in a document, and the
// arguments become part of several documents: an entry, and the next request.
const maxDepth = 100

// deep reports whether JSON is nested deeper than [maxDepth].
func deep(text string) bool {
	level, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if level++; level > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			level--
		}
	}
	return false
}

// collect collects the reasons at the leaves of a result, whose locations are relative to the results above. Results
// above the leaves only say that something below is wrong, except for missing properties: below, these look like a
// wrong null.
func collect(r *jsonschema.EvaluationResult, where string, why *[]string) {
	if r.IsValid() {
		return
	}
	where = joined(where, ".", location(r))
	say := func(text string) { *why = append(*why, joined(where, ": ", text)) }
	before := len(*why)
	missing := ""
	if e := r.Errors["required"]; e != nil {
		missing = e.Error()
		say(missing)
	}
	for _, d := range r.Details {
		if step := location(d); step == "" || !strings.Contains(missing, "'"+step+"'") {
			collect(d, where, why)
		}
	}
	if len(*why) > before {
		return
	}
	for _, e := range r.Errors {
		if e.Code == "false_schema_mismatch" { // of additionalProperties
			say("there is no such argument")
		} else {
			say(e.Error())
		}
	}
}

// joined joins two texts, or returns the one that is not empty.
func joined(a, between, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

// location returns the location of a result relative to the one above it, such as "env.PATH".
func location(r *jsonschema.EvaluationResult) string {
	return strings.ReplaceAll(strings.Trim(r.InstanceLocation, "/"), "/", ".")
}

// maxDefinitions is how deep definitions may refer to each other in a sent schema. maxNodes is how large it may become,
// because definitions that refer to each other twice double at each level.
const (
	maxDefinitions = 8
	maxNodes       = 20_000
)

// sendable returns a schema in the form that every provider accepts: with properties, and with definitions inlined
// instead of references.
func sendable(schema json.RawMessage) (map[string]any, error) {
	if len(bytes.TrimSpace(schema)) == 0 {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	var whole map[string]any
	if err := json.Unmarshal(schema, &whole); err != nil {
		return nil, err
	}
	i := inliner{definitions: takeDefinitions(whole), left: maxNodes}
	sent, _ := i.inlined(whole, 0).(map[string]any)
	var required []string
	if names, ok := sent["required"].([]any); ok {
		for _, name := range names {
			if text, isText := name.(string); isText {
				required = append(required, text)
			}
		}
	}
	delete(sent, "required")
	if len(required) > 0 {
		sent["required"] = required
	}
	if _, ok := sent["properties"].(map[string]any); !ok {
		sent["properties"] = map[string]any{}
	}
	return sent, nil
}

// takeDefinitions takes the definitions out of a schema. The keys are the references to them.
func takeDefinitions(whole map[string]any) map[string]any {
	definitions := map[string]any{}
	for _, name := range []string{"$defs", "definitions"} {
		if of, ok := whole[name].(map[string]any); ok {
			for key, definition := range of {
				definitions["#/"+name+"/"+key] = definition
			}
			delete(whole, name)
		}
	}
	return definitions
}

// references are the keywords, besides $ref, that refer to another location in a schema or name one. Without them, no
// part of a schema can refer to its surroundings.
var references = []string{"$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor"}

// inliner replaces references by their definitions. A reference that goes too deep, as in a recursive schema, becomes a
// schema that accepts anything.
type inliner struct {
	definitions map[string]any
	left        int
}

func (i *inliner) inlined(node any, depth int) any {
	i.left--
	switch node := node.(type) {
	case map[string]any:
		if name, ok := node["$ref"].(string); ok {
			definition, known := i.definitions[name]
			if !known || depth >= maxDefinitions || i.left < 0 {
				return map[string]any{}
			}
			return i.inlined(definition, depth+1)
		}
		copied := make(map[string]any, len(node))
		for key, value := range node {
			if _, isText := value.(string); isText && slices.Contains(references, key) {
				continue
			}
			copied[key] = i.inlined(value, depth)
		}
		return copied
	case []any:
		copied := make([]any, len(node))
		for at, value := range node {
			copied[at] = i.inlined(value, depth)
		}
		return copied
	}
	return node
}

// Tool is a tool that a model may call.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON schema of the arguments, which are an object; empty means no arguments. See [CheckArguments].
	Schema json.RawMessage
}

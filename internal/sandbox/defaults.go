package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// This file reads a repository's own setup, for recipes without a setup script.

// defaultFiles are the files in which a repository may describe its setup, in the order of lookup.
var defaultFiles = []string{"arbe.json", ".devcontainer/devcontainer.json", ".devcontainer.json"}

// maxDefaults limits the size of such a file.
const maxDefaults = 256 << 10

// notUsed lists fields of these files that other tools use and arbe ignores: an image is needed before the repository is
// cloned, and the other fields are about editors and other containers.
var notUsed = []string{"image", "build", "dockerComposeFile", "features", "containerEnv", "remoteEnv", "workspaceFolder", "postStartCommand", "onCreateCommand", "updateContentCommand"}

// ownSetup returns the setup of the first repository; without argv if it has none. It gets no secrets, because no
// member of the house has reviewed it.
func (p *preparing) ownSetup() (own script, err error) {
	list := p.recipe.checkouts()
	if len(list) == 0 {
		return script{}, nil
	}
	folder := path.Join(Workspace, list[0].Folder)
	for _, name := range defaultFiles {
		text, err := p.read(path.Join(folder, name))
		if err != nil || text == nil {
			if err != nil {
				return script{}, err
			}
			continue
		}
		command, unused, err := parseDefaults(text)
		if err != nil {
			return script{}, fault.Newf(fault.Precondition, "correct it in the repository, or give the environment its own setup script",
				"the sandbox could not be prepared: %s of the repository cannot be read: %v", name, err)
		}
		if command == "" {
			return script{}, nil
		}
		own = script{name: "setup of " + name, argv: []string{"/bin/sh", "-e", "-c", command}, dir: folder}
		if len(unused) > 0 {
			said := fmt.Sprintf("arbe: not used of %s: %s", name, strings.Join(unused, ", "))
			own.argv = []string{"/bin/sh", "-e", "-c", `echo "$2"; exec /bin/sh -e -c "$1"`, "setup", command, said}
		}
		return own, nil
	}
	return script{}, nil
}

// read returns a file of the box; nil if there is none.
func (p *preparing) read(name string) ([]byte, error) {
	file, err := p.driver.Download(p.ctx, p.ref, name)
	if code := fault.CodeOf(err); code == fault.NotFound || code == fault.Invalid { // Invalid: not a regular file
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxDefaults+1))
	if len(text) > maxDefaults {
		return nil, fault.Newf(fault.Precondition, "shorten it", "%s has more than %d KiB", name, maxDefaults>>10)
	}
	return text, err
}

// parseDefaults returns the setup of a file, as a line for the shell, and the names of fields that are not used.
func parseDefaults(text []byte) (command string, unused []string, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(withoutComments(text), &fields); err != nil {
		return "", nil, err
	}
	for _, name := range []string{"setup", "postCreateCommand"} {
		if raw, ok := fields[name]; ok && command == "" {
			if command, err = commandOf(raw, true); err != nil {
				return "", nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, name := range notUsed {
		if _, ok := fields[name]; ok {
			unused = append(unused, name)
		}
	}
	return command, unused, nil
}

// commandOf returns a command that is written as a line, as a program with its arguments, or as an object of several.
func commandOf(raw json.RawMessage, outermost bool) (string, error) {
	var line string
	var argv []string
	var several map[string]json.RawMessage
	switch {
	case json.Unmarshal(raw, &line) == nil:
		return line, nil
	case json.Unmarshal(raw, &argv) == nil:
		for i, word := range argv {
			argv[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		return strings.Join(argv, " "), nil
	case outermost && json.Unmarshal(raw, &several) == nil:
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(several)) {
			line, err := commandOf(several[name], false)
			if err != nil {
				return "", err
			}
			lines = append(lines, "( "+line+"\n)")
		}
		return strings.Join(lines, "\n"), nil
	}
	return "", fmt.Errorf("it is neither a text, a list of texts, nor an object of these")
}

// withoutComments returns JSON without the comments and the commas before closing brackets that files for people may
// have.
func withoutComments(text []byte) []byte {
	var out bytes.Buffer
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch {
		case rest[0] == '"':
			n := 1
			for n < len(rest) && rest[n] != '"' {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			out.Write(rest[:n])
			i += n - 1
		case bytes.HasPrefix(rest, []byte("//")):
			if end := bytes.IndexByte(rest, '\n'); end >= 0 {
				i += end - 1
			} else {
				i = len(text)
			}
		case bytes.HasPrefix(rest, []byte("/*")):
			if end := bytes.Index(rest, []byte("*/")); end >= 0 {
				i += end + 1
			} else {
				i = len(text)
			}
		case rest[0] == ']' || rest[0] == '}':
			kept := bytes.TrimRight(out.Bytes(), " \t\r\n")
			if bytes.HasSuffix(kept, []byte(",")) {
				out.Truncate(len(kept) - 1)
			}
			out.WriteByte(rest[0])
		default:
			out.WriteByte(rest[0])
		}
	}
	return out.Bytes()
}

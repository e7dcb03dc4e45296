package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// This file reads what a repository says about its own sandboxes. It is used where the recipe says nothing.

// defaultFiles are the files in which a repository may describe its sandboxes, in the order of lookup.
var defaultFiles = []string{"arbe.json", ".devcontainer/devcontainer.json", ".devcontainer.json"}

// maxDefaults limits the size of such a file, and maxDefaultVariables the variables in it.
const maxDefaults, maxDefaultVariables = 256 << 10, 100

// Defaults are what a repository says about its sandboxes, as far as it concerns their use. They are stored with each
// sandbox. No member of the house has reviewed them, so the scripts of a repository receive no secrets.
type Defaults struct {
	// Start is a script that runs each time the box has started, in the folder StartIn of the working tree.
	Start   string `json:"start,omitempty"`
	StartIn string `json:"start_in,omitempty"`
	// Directory is where commands start, below the working tree.
	Directory string `json:"directory,omitempty"`
	// Env are environment variables of commands. Others take precedence.
	Env map[string]string `json:"env,omitempty"`
}

// repositoryFile is the content of such a file.
type repositoryFile struct {
	Defaults
	setup  string
	image  string
	limits Limits
	// used and unused are names of fields for the user: those that have an effect, and those that arbe does not
	// understand.
	used, unused []string
}

// fields are the fields of the files by their names. A field has several names, because the files have different ones.
// Each function returns false if it does not understand the value.
var fields = []struct {
	name string
	read func(d *repositoryFile, raw json.RawMessage, folder string) (bool, error)
}{
	{"setup", readSetup}, {"postCreateCommand", readSetup},
	{"start", readStart}, {"postStartCommand", readStart},
	{"directory", readDirectory}, {"workspaceFolder", readDirectory},
	{"image", readImage},
	{"limits", readLimits}, {"hostRequirements", readRequirements},
	{"env", nil}, {"remoteEnv", nil}, {"containerEnv", nil}, // these have names of their own, see readEnv
}

// withoutEffect are fields that say nothing about a sandbox.
var withoutEffect = []string{"$schema", "name"}

// parseDefaults returns the content of a file. folder is the folder of the repository, below the working tree.
func parseDefaults(text []byte, folder string) (d repositoryFile, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(withoutComments(text), &all); err != nil {
		return d, err
	}
	d.StartIn = folder
	for _, field := range fields {
		raw, ok := all[field.name]
		if !ok {
			continue
		}
		delete(all, field.name)
		if bytes.Contains(raw, []byte(`\u0000`)) {
			return d, fmt.Errorf("%s: it has a NUL byte", field.name)
		}
		understood := true
		if field.read == nil {
			err = d.readEnv(field.name, raw, folder)
		} else if understood, err = field.read(&d, raw, folder); understood {
			d.used = append(d.used, field.name)
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", field.name, err)
		}
		if !understood {
			d.unused = append(d.unused, field.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(withoutEffect, name) {
			d.unused = append(d.unused, name)
		}
	}
	return d, nil
}

func readSetup(d *repositoryFile, raw json.RawMessage, _ string) (bool, error) {
	return readCommand(&d.setup, raw)
}

func readStart(d *repositoryFile, raw json.RawMessage, _ string) (bool, error) {
	return readCommand(&d.Start, raw)
}

// readCommand reads a command, unless another field had one.
func readCommand(to *string, raw json.RawMessage) (bool, error) {
	if *to != "" {
		return false, nil
	}
	command, err := commandOf(raw, true)
	*to = command
	return command != "", err
}

// readDirectory reads the folder in which commands start. A dev container has its repository in /workspaces/NAME or
// /workspace, wherever the folder of the repository is here.
func readDirectory(d *repositoryFile, raw json.RawMessage, folder string) (bool, error) {
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return false, errors.New("it is not a text")
	}
	name = strings.ReplaceAll(name, "${localWorkspaceFolderBasename}", "repository")
	rest, in := strings.CutPrefix(name, "/workspaces/")
	if in {
		_, rest, _ = strings.Cut(rest, "/")
	} else if rest, in = strings.CutPrefix(name+"/", Workspace+"/"); !in {
		rest, in = name, !path.IsAbs(name)
	}
	rest = strings.TrimRight(rest, "/")
	if name == "" || !in || d.Directory != "" || strings.Contains(rest, "${") || !localFolder(rest) {
		return false, nil
	}
	d.Directory = path.Join(folder, rest)
	return true, nil
}

func readImage(d *repositoryFile, raw json.RawMessage, _ string) (bool, error) {
	if err := json.Unmarshal(raw, &d.image); err != nil {
		return false, errors.New("it is not a text")
	}
	return d.image != "", nil
}

// readLimits reads limits as a recipe has them.
func readLimits(d *repositoryFile, raw json.RawMessage, _ string) (bool, error) {
	var l struct {
		Limits
		Idle any `json:"idle"` // hides the recipe's, which is a number
	}
	decode := json.NewDecoder(bytes.NewReader(raw))
	decode.DisallowUnknownFields()
	if err := decode.Decode(&l); err != nil {
		return false, fmt.Errorf("give memory_mb, disk_mb, pids and cpus as numbers: %w", err)
	}
	if l.Idle != nil || l.MemoryMB < 0 || l.DiskMB < 0 || l.PIDs < 0 || l.CPUs < 0 {
		return false, errors.New("give memory_mb, disk_mb, pids and cpus as numbers")
	}
	d.limits = l.Limits
	return d.limits != Limits{}, nil
}

// readRequirements reads what a dev container needs of its machine.
func readRequirements(d *repositoryFile, raw json.RawMessage, _ string) (bool, error) {
	var needs struct {
		CPUs    float64 `json:"cpus"`
		Memory  string  `json:"memory"`
		Storage string  `json:"storage"`
		GPU     any     `json:"gpu"`
	}
	if err := json.Unmarshal(raw, &needs); err != nil || needs.CPUs < 0 {
		return false, errors.New("give cpus as a number, and memory and storage as texts such as 8gb")
	}
	asked := Limits{CPUs: needs.CPUs, MemoryMB: megabytes(needs.Memory), DiskMB: megabytes(needs.Storage)}
	if needs.GPU != nil {
		d.unused = append(d.unused, "hostRequirements.gpu")
	}
	if d.limits != (Limits{}) || asked == (Limits{}) {
		return false, nil
	}
	d.limits = asked
	return true, nil
}

// megabytes returns a size such as 8gb in MiB; 0 if it is not one.
func megabytes(size string) int {
	size = strings.ToLower(strings.TrimSpace(size))
	for unit, factor := range map[string]float64{"tb": 1 << 20, "gb": 1 << 10, "mb": 1} {
		if number, ok := strings.CutSuffix(size, unit); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err == nil && n > 0 && n*factor < 1<<30 {
				return int(n * factor)
			}
		}
	}
	return 0
}

var variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// readEnv reads environment variables. Those that refer to other variables are not understood.
func (d *repositoryFile) readEnv(field string, raw json.RawMessage, folder string) error {
	var values map[string]*string
	if err := json.Unmarshal(raw, &values); err != nil {
		return errors.New("it is not an object of texts")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := ""
		if values[name] != nil {
			value = strings.ReplaceAll(*values[name], "${containerWorkspaceFolder}", path.Join(Workspace, folder))
		}
		_, twice := d.Env[name]
		if values[name] == nil || twice || strings.Contains(value, "${") || len(d.Env) == maxDefaultVariables ||
			!variable.MatchString(name) || strings.HasPrefix(name, "ARBE_") || slices.Contains(ownVariables, name) {
			d.unused = append(d.unused, field+"."+entry.Clip(name, maxLabelName))
			continue
		}
		if d.Env == nil {
			d.Env = map[string]string{}
		}
		d.Env[name] = value
		d.used = append(d.used, field+"."+name)
	}
	return nil
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

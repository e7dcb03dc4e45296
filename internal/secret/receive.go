package secret

import (
	"context"
	"maps"

	"github.com/arbe-dev/arbe/internal/fault"
)

// MaxReceived limits the secrets of one command together, in bytes. The system limits an environment, and a redactor takes
// some twelve times the size of its values.
const MaxReceived = 128 << 10

// Folder is the folder of a sandbox that holds secrets as files. It is in memory, so that they never end up in a saved
// tree, a cached environment or on a disk. No other folder promises this.
const Folder = "/run/secrets"

// Binding gives the commands of an environment a secret of their house, as an environment variable of the same name.
type Binding struct {
	Name string `json:"name"`
	// Required: without the secret, commands do not start.
	Required bool `json:"required"`
	// File is the name of a file in [Folder] that holds the value. The variable then holds the path of the file. If
	// File is empty, the variable holds the value.
	File string `json:"file,omitempty"`
}

// Received are the secrets that one command receives.
type Received struct {
	// Env holds the command's environment variables: the values by name, or the paths of files that hold them.
	Env map[string]string
	// Files holds the contents of files by their names in [Folder].
	Files map[string]string
	// Revisions identify the values: a secret's revision changes with its value.
	Revisions map[string]int64
	// Redactor removes these values and no others.
	Redactor *Redactor
}

// Receive returns the secrets for a command with these bindings, and records their use. The error is a [fault.Precondition]
// if a required secret is missing, or if the values have more than [MaxReceived] bytes together.
func (s *Secrets) Receive(ctx context.Context, house string, bindings []Binding) (Received, error) {
	if len(bindings) == 0 {
		return Received{}, nil
	}
	names := make([]string, len(bindings))
	files := map[string]string{}
	for i, b := range bindings {
		names[i], files[b.Name] = b.Name, b.File
	}
	rows, err := s.sealed(ctx, house, names)
	if err != nil {
		return Received{}, err
	}
	got := Received{Env: map[string]string{}, Revisions: map[string]int64{}}
	var values [][]byte
	size := 0
	for _, r := range rows {
		value, err := s.open(house, r)
		if err != nil {
			return Received{}, err
		}
		got.give(r.Name, files[r.Name], string(value))
		got.Revisions[r.Name] = r.Revision
		values, size = append(values, value), size+len(value)
	}
	for _, b := range bindings {
		if _, there := got.Env[b.Name]; b.Required && !there {
			return Received{}, fault.Newf(fault.Precondition, "set it with: arbe secret set "+b.Name+"; or change the environment", "the environment needs the secret %s, which this house does not have", b.Name).WithReason(fault.SecretMissing)
		}
	}
	if size > MaxReceived {
		return Received{}, fault.Newf(fault.Precondition, "bind fewer secrets to the environment", "its secrets have %d bytes together, more than the %d that a command may receive", size, MaxReceived)
	}
	got.Redactor = NewRedactor(values...)
	return got, s.Used(ctx, house, names...)
}

// give adds a value under a name: as a variable, or as a file if file is its name.
func (r *Received) give(name, file, value string) {
	if file == "" {
		r.Env[name] = value
		return
	}
	if r.Files == nil {
		r.Files = map[string]string{}
	}
	r.Env[name], r.Files[file] = Folder+"/"+file, value
}

// ReceiveAgain returns the secrets that a command received from a server that is gone. files are the names of the files
// of secrets received as files, by the names of the secrets. If one of the values is no longer known, the Redactor is
// [Everything].
func (s *Secrets) ReceiveAgain(ctx context.Context, house string, revisions map[string]int64, files map[string]string) (Received, error) {
	var bindings []Binding
	for name := range revisions {
		bindings = append(bindings, Binding{Name: name, File: files[name]})
	}
	got, err := s.Receive(ctx, house, bindings)
	if fault.CodeOf(err) == fault.Precondition || err == nil && !maps.Equal(got.Revisions, revisions) {
		return Received{Redactor: Everything}, nil
	}
	return got, err
}

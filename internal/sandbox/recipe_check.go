package sandbox

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/secret"
)

// encode returns the recipe's stored form, or a [fault.Invalid] if the recipe itself is invalid.
func (r Recipe) encode() (json.RawMessage, error) {
	config, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	// Postgres refuses a NUL byte, which is \u0000 in JSON. Backslashes, each written as two, are removed first,
	// because \\u0000 is not a NUL byte.
	if strings.Contains(strings.ReplaceAll(string(config), `\\`, ""), `\u0000`) {
		return nil, fault.New(fault.Invalid, "config: it has a NUL byte", "remove the NUL byte")
	}
	return config, cmp.Or(r.checkRepositories(), r.checkGit(), r.checkRest(), checkSecrets(r.Secrets), r.egress().Check())
}

// checkRest validates the scripts' directory and the labels.
func (r Recipe) checkRest() error {
	if !localFolder(r.Directory) {
		return fault.New(fault.Invalid, "directory: it is not a folder below the working tree", "give a relative path without .., such as web")
	}
	if len(r.Labels) > maxLabels {
		return fault.Newf(fault.Invalid, "remove some", "labels: more than %d", maxLabels)
	}
	for name, value := range r.Labels {
		if strings.Contains(name, "=") {
			return fault.Newf(fault.Invalid, "use another name", "labels: the name %q has a =", entry.Clip(name, maxLabelName))
		}
		if name == "" || len(name) > maxLabelName || len(value) > maxLabelValue || strings.ContainsFunc(name+value, unicode.IsControl) {
			return fault.Newf(fault.Invalid, "shorten it", "labels: %q has no name, is longer than a label may be, or has control characters", entry.Clip(name, maxLabelName))
		}
	}
	return nil
}

// checkSecrets validates the secrets that a recipe binds.
func checkSecrets(bindings []secret.Binding) error {
	seen, files := map[string]bool{}, map[string]bool{}
	for _, b := range bindings {
		switch err := secret.CheckName(b.Name); {
		case err != nil:
			return fault.New(fault.Invalid, "secrets: "+strings.TrimPrefix(fault.From(err).Message, "name: "), fault.From(err).Next)
		case slices.Contains(ownVariables, b.Name):
			return fault.Newf(fault.Invalid, "give the secret another name", "secrets: %s is an environment variable of each command", b.Name)
		case seen[b.Name]:
			return fault.Newf(fault.Invalid, "name it once", "secrets: %s is there twice", b.Name)
		case b.File != "" && !validSecretFile.MatchString(b.File):
			return fault.Newf(fault.Invalid, "use letters, digits, - and _, and dots but not at the beginning, at most 100 characters, such as kubeconfig",
				"secrets: the file of %s cannot have this name in %s", b.Name, SecretFolder)
		case b.File != "" && files[b.File]:
			return fault.Newf(fault.Invalid, "give each its own file", "secrets: the file %s is there twice", b.File)
		}
		seen[b.Name], files[b.File] = true, true
	}
	return nil
}

// validSecretFile is the form of the name of a secret's file. Files whose names begin with a dot are the drivers'.
var validSecretFile = lazyregexp.New(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)

// ownVariables are the environment variables that each command has from its box.
var ownVariables = []string{"PATH", "HOME", "USER", "LANG", "TERM", "GIT_TERMINAL_PROMPT"}

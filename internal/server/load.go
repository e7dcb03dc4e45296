package server

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Value is the value of a setting and its origin.
type Value struct {
	Value string `json:"value"`
	// Origin is "flag", "env", "file", "data directory" or "default".
	Origin string `json:"origin"`
}

// Origins holds the values of all settings by name.
type Origins map[string]Value

// configFile is the configuration file in the data directory: a JSON object of the settings' values by name.
const configFile = "config.json"

// Load reads the settings. For each, the first of these wins: flags (by the setting's name), the environment, the file
// config.json in the data directory, the default. Load returns a [fault.Invalid] for a file that is not a JSON object of
// known settings, and for a value that a setting cannot have.
func Load(flags map[string]string, getenv func(string) string) (Config, Origins, error) {
	var c Config
	origins := Origins{}
	read := func(s Setting, file map[string]string) error {
		v := valueOf(s, flags, getenv, file)
		origins[s.Name] = v
		return s.Set(&c, v.Value)
	}
	if err := read(dataDir, nil); err != nil {
		return Config{}, nil, err
	}
	file, err := readFile(filepath.Join(c.DataDir, configFile))
	if err != nil {
		return Config{}, nil, err
	}
	for _, s := range Settings {
		if s.Name == dataDir.Name {
			continue
		}
		if err := read(s, file); err != nil {
			return Config{}, nil, err
		}
	}
	return c, origins, nil
}

// valueOf returns the value of a setting, and where it comes from.
func valueOf(s Setting, flags map[string]string, getenv func(string) string, file map[string]string) Value {
	v := Value{s.Default, "default"}
	if text, ok := file[s.Name]; ok {
		v = Value{text, "file"}
	}
	if text := getenv(s.Env); text != "" {
		v = Value{text, "env"}
	}
	if text, ok := flags[s.Name]; ok {
		v = Value{text, "flag"}
	}
	return v
}

// readFile reads a configuration file. A missing file sets nothing.
func readFile(path string) (map[string]string, error) {
	settings := map[string]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return settings, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return nil, fault.Newf(fault.Invalid, `write it as {"addr": "127.0.0.1:8420", …}, every value a string`, "%s cannot be read as settings", path).Because(err)
	}
	known := map[string]bool{}
	for _, s := range Settings {
		known[s.Name] = true
	}
	for name := range settings {
		if !known[name] {
			return nil, fault.Newf(fault.Invalid, "arbe config lists the settings", "%s: there is no setting %q", path, name)
		}
	}
	return settings, nil
}

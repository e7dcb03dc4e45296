package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

func TestTheFirstThatSaysSomethingWins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"ARBE_DATA_DIR": dir}
	flags := map[string]string{}
	getenv := func(name string) string { return env[name] }
	expect := func(value, origin string) {
		t.Helper()
		cfg, origins, err := server.Load(flags, getenv)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Addr != value || origins["addr"] != (server.Value{Value: value, Origin: origin}) {
			t.Errorf("addr is %q by %+v, want %q by %s", cfg.Addr, origins["addr"], value, origin)
		}
	}
	expect("127.0.0.1:8420", "default")
	write(t, dir, `{"addr": "127.0.0.1:1"}`)
	expect("127.0.0.1:1", "file")
	env["ARBE_ADDR"] = "127.0.0.1:2"
	expect("127.0.0.1:2", "env")
	flags["addr"] = "127.0.0.1:3"
	expect("127.0.0.1:3", "flag")
}

func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file  string
		flags map[string]string
	}{
		"a file that is no JSON":      {file: `addr = 1`},
		"a setting that there is not": {file: `{"adr": "127.0.0.1:1"}`},
		"an address without a port":   {flags: map[string]string{"addr": "localhost"}},
		"a port out of range":         {flags: map[string]string{"addr": "localhost:70000"}},
		"a public URL that is none":   {flags: map[string]string{"public_url": "arbe.example.com"}},
		"an image space that is none": {flags: map[string]string{"image_space_mb": "10 GB"}},
		"no cores at all":             {flags: map[string]string{"sandbox_max_cpus": "0"}},
		"a command time that is none": {flags: map[string]string{"sandbox_max_command_time": "4"}},
		"a machine gone that is none": {flags: map[string]string{"sandbox_machine_gone": "soon"}},
		"a negative free space":       {flags: map[string]string{"sandbox_free_disk_mb": "-1"}},
		"a blob store that is none":   {flags: map[string]string{"blob_store": "disk"}},
		"a bucket without a name":     {flags: map[string]string{"blob_store": "s3://"}},
		"a size that is none":         {flags: map[string]string{"artifact_max_size": "large"}},
		"a quota of nothing":          {flags: map[string]string{"artifact_quota": "0"}},
		"a spool that is none":        {flags: map[string]string{"spool_size": "-1"}},
		"a size beyond numbers":       {flags: map[string]string{"artifact_quota": "9999999999999TiB"}},
		"a log level that is none":    {flags: map[string]string{"log_level": "loud"}},
		"a limit that is none":        {flags: map[string]string{"house_commands": "many"}},
		"money that is none":          {flags: map[string]string{"installation_usd_day": "a lot"}},
		"no money at all":             {flags: map[string]string{"person_usd_day": "0"}},
		"a price that is none":        {flags: map[string]string{"unknown_usd": "NaN"}},
		"money beyond numbers":        {flags: map[string]string{"entry_usd": "Inf"}},
		"creators that are none":      {flags: map[string]string{"house_creation": "everyone"}},
		"houses that are no number":   {flags: map[string]string{"houses_per_person": "-1"}},
		"a time that is none":         {flags: map[string]string{"entry_time": "a day"}},
		"turns without an end":        {flags: map[string]string{"turn_max_minutes": "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.file != "" {
				write(t, dir, c.file)
			}
			flags := map[string]string{"data_dir": dir}
			for k, v := range c.flags {
				flags[k] = v
			}
			_, _, err := server.Load(flags, func(string) string { return "" })
			if f := fault.From(err); f == nil || f.Code != fault.Invalid || f.Next == "" {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestEverySettingHasAFieldAVariableAndADefault(t *testing.T) {
	t.Parallel()
	_, origins, err := server.Load(map[string]string{"data_dir": t.TempDir()}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range server.Settings {
		if s.Env == "" || s.Usage == "" {
			t.Errorf("%s lacks a variable or a line of help", s.Name)
		}
		if _, ok := origins[s.Name]; !ok {
			t.Errorf("%s has no origin", s.Name)
		}
	}
}

func write(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

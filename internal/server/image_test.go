package server_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// instructions returns the instructions of a Dockerfile, each with its arguments in one line.
func instructions(t *testing.T, file string) (all [][2]string) {
	t.Helper()
	joined := strings.ReplaceAll(regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, file), ""), "\\\n", " ")
	for line := range strings.Lines(joined) {
		name, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if !slices.Contains(strings.Fields("FROM WORKDIR COPY RUN ARG ENV USER VOLUME EXPOSE ENTRYPOINT CMD"), name) {
			t.Errorf("%s is no instruction: %s", name, line)
		}
		all = append(all, [2]string{name, strings.TrimSpace(arguments)})
	}
	return all
}

// The Dockerfile names only files that exist, and uses the Go version and the flags of make build.
func TestTheDockerfile(t *testing.T) {
	t.Parallel()
	stages := map[string]bool{}
	for _, i := range instructions(t, deploy+"Dockerfile") {
		switch words := strings.Fields(i[1]); i[0] {
		case "FROM":
			if len(words) == 3 && words[1] == "AS" {
				stages[words[2]] = true
			}
		case "COPY":
			from := ""
			for len(words) > 0 && strings.HasPrefix(words[0], "--") {
				if name, is := strings.CutPrefix(words[0], "--from="); is {
					from = name
				}
				words = words[1:]
			}
			if from != "" && !stages[from] {
				t.Errorf("COPY %s: there is no stage %s before it", i[1], from)
			}
			for _, source := range words[:len(words)-1] {
				if _, err := os.Stat(filepath.Join("../..", source)); from == "" && err != nil {
					t.Errorf("COPY %s: %v", i[1], err)
				}
			}
		}
	}
	if !stages["build"] || !stages["small"] {
		t.Errorf("it has the stages %v, and the page names build and small", stages)
	}
	file, makefile := read(t, deploy+"Dockerfile"), read(t, "../../Makefile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))[1]
	if !strings.Contains(file, "FROM golang:"+version+" ") {
		t.Errorf("it does not build with Go %s, the version of go.mod", version)
	}
	for _, same := range []string{"github.com/arbe-dev/arbe/internal/version", "-tags=grpcnotrace", ".stamp=$", ".commit=$", "-s -w"} {
		if !strings.Contains(file, same) || !strings.Contains(makefile, same) {
			t.Errorf("%q is not in both the Dockerfile and the Makefile", same)
		}
	}
}

func TestTheComposeFile(t *testing.T) {
	t.Parallel()
	var file struct {
		Services map[string]struct {
			Image string
			Build struct{ Context, Dockerfile string }
			// Other parts of the file, and the settings, must have what DependsOn, Volumes and Environment name.
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
			Volumes     []string
			Environment map[string]string
			Healthcheck struct{ Test []string }
		}
		Volumes map[string]any
	}
	text := read(t, deploy+"compose.yaml")
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	server := file.Services["arbe"]
	if _, err := os.Stat(filepath.Join(deploy, server.Build.Context, server.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if url := server.Environment["DATABASE_URL"]; !strings.Contains(url, "@postgres/") || file.Services["postgres"].Image == "" {
		t.Errorf("the server uses the database %q, which is no service", url)
	}
	for name, service := range file.Services {
		for other, on := range service.DependsOn {
			if on.Condition == "service_healthy" && len(file.Services[other].Healthcheck.Test) == 0 {
				t.Errorf("%s waits for %s to be healthy, which has no check", name, other)
			}
		}
		for _, volume := range service.Volumes {
			if volume, _, _ := strings.Cut(volume, ":"); !has(file.Volumes, volume) {
				t.Errorf("%s uses the volume %s, which is not declared", name, volume)
			}
		}
	}
	for _, variable := range regexp.MustCompile(`\$\{([A-Z_]+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(read(t, deploy+"README.md"), variable[1]) {
			t.Errorf("README.md does not say what %s is", variable[1])
		}
	}
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Log("docker compose is not installed: only this test has read the file")
		return
	}
	check := exec.CommandContext(t.Context(), "docker", "compose", "-f", deploy+"compose.yaml", "config", "--quiet")
	check.Env = append(os.Environ(), "POSTGRES_PASSWORD=password")
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("docker compose refuses it: %v\n%s", err, said)
	}
}

func has[V any](m map[string]V, key string) bool { _, has := m[key]; return has }

// Building the image needs an engine that reaches a registry and the module proxy.
func TestTheImageIsBuilt(t *testing.T) {
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("docker is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	docker := func(args ...string) (string, error) {
		said, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
		return string(said), err
	}
	if said, err := docker("info", "--format", "{{.ServerVersion}}"); err != nil {
		t.Skipf("no Docker engine runs: %s", said)
	}
	for _, base := range []string{"golang:1.26", "debian:stable-slim"} {
		if _, err := docker("image", "inspect", base); err == nil {
			continue
		}
		if said, err := docker("pull", "--quiet", base); err != nil {
			t.Skipf("the engine has no image %s: %s", base, said)
		}
	}
	for _, fetches := range []string{"modules", "machine"} {
		if said, err := docker("build", "--quiet", "--target", fetches, "-f", deploy+"Dockerfile", "../.."); err != nil {
			t.Skipf("the engine does not reach what the stage %s fetches: %s", fetches, said)
		}
	}
	for _, target := range []string{"", "small"} {
		tag := "arbe-test" + target
		args := []string{"build", "--quiet", "-t", tag, "-f", deploy + "Dockerfile", "--build-arg", "VERSION=v1.2.3"}
		if target != "" {
			args = append(args, "--target", target)
		}
		if said, err := docker(append(args, "../..")...); err != nil {
			t.Fatalf("docker build: %v\n%s", err, said)
		}
		t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", tag).Run() }) // a leftover image does no harm
		if said, err := docker("run", "--rm", tag, "version"); err != nil || !strings.Contains(said, "v1.2.3") {
			t.Errorf("the image says %q (%v)", said, err)
		}
		// Without a database, the image serves nothing, and says so.
		said, err := docker("run", "--rm", tag)
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !strings.Contains(said, "DATABASE_URL") {
			t.Errorf("without a database it says %q (%v)", said, err)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestGitCredentialsInFlagsAndFiles: both say the same, and what a file shows can be read again.
func TestGitCredentialsInFlagsAndFiles(t *testing.T) {
	t.Parallel()
	want := []*arbev1.GitCredential{
		{Host: "github.com", Secret: "APP_KEY", GithubApp: "4711"},
		{Host: "git.example.com", Secret: "OTHER_KEY", GithubApp: "Iv1.0a", GithubApi: "https://git.example.com:8443/api/v3"},
		{Host: "gitlab.com", Secret: "DEPLOY_KEY", User: "ada", HostKeys: []string{"SHA256:x"}},
	}
	var flagged environmentFile
	if err := (&recipe{}).over(&flagged, []string{
		"github.com=APP_KEY=app:4711", "git.example.com=OTHER_KEY=app:Iv1.0a=api:https://git.example.com:8443/api/v3", "gitlab.com=DEPLOY_KEY=ada=SHA256:x",
	}); err != nil {
		t.Fatal(err)
	}
	read, err := readEnvironment(strings.NewReader(`git:
- {host: github.com, secret: APP_KEY, github_app: 4711}
- {host: git.example.com, secret: OTHER_KEY, github_app: Iv1.0a, github_api: "https://git.example.com:8443/api/v3"}
- {host: gitlab.com, secret: DEPLOY_KEY, user: ada, host_keys: ["SHA256:x"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]recipe{"flags": flagged.recipe, "a file": read.recipe, "what is shown": recipeOf(&arbev1.EnvironmentConfig{Git: want})} {
		config, err := r.config()
		if err != nil || len(config.GetGit()) != len(want) {
			t.Fatalf("%s: %v %v", name, config, err)
		}
		for i, g := range config.GetGit() {
			if !proto.Equal(g, want[i]) {
				t.Errorf("%s: it is %v, want %v", name, g, want[i])
			}
		}
	}
}

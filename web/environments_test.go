package web

import (
	"net/http"
	"net/url"
	"testing"

	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestAnEnvironmentsFormKeepsItsGitCredentials: what the form shows is what is saved.
func TestAnEnvironmentsFormKeepsItsGitCredentials(t *testing.T) {
	t.Parallel()
	want := []*arbev1.GitCredential{
		{Host: "github.com", Secret: "APP_KEY", GithubApp: "4711"},
		{Host: "git.example.com", Secret: "OTHER_KEY", GithubApp: "Iv1.0a", GithubApi: "https://git.example.com:8443/api/v3"},
		{Host: "gitlab.com", Secret: "DEPLOY_KEY", User: "ada", HostKeys: []string{"SHA256:x"}},
	}
	form := url.Values{}
	for field, value := range valuesOf(&arbev1.Environment{Config: &arbev1.EnvironmentConfig{Git: want}}) {
		form.Set(field, value)
	}
	_, config, wrong := recipeOf(&http.Request{Method: http.MethodPost, PostForm: form, Form: form})
	if len(wrong) > 0 || len(config.GetGit()) != len(want) {
		t.Fatalf("it saves %v, and says %v", config, wrong)
	}
	for i, g := range config.GetGit() {
		if !proto.Equal(g, want[i]) {
			t.Errorf("it saves %v, want %v", g, want[i])
		}
	}
}

package rpc_test

import (
	"math"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/sandbox"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// environment creates an environment in p's house.
func (p person) environment(t *testing.T, name string, config *arbev1.EnvironmentConfig) *arbev1.Environment {
	t.Helper()
	res, err := p.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: p.house.Id, Name: name, Config: config})
	must(t, err)
	return res.Environment
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	get := func(t *testing.T, id string) (*arbev1.Environment, error) {
		t.Helper()
		res, err := ada.Environments.GetEnvironment(t.Context(), &arbev1.GetEnvironmentRequest{Id: id})
		return res.GetEnvironment(), err
	}
	remove := func(t *testing.T, id string) error {
		return errOf(ada.Environments.DeleteEnvironment(t.Context(), &arbev1.DeleteEnvironmentRequest{Id: id}))
	}
	recipe := &arbev1.EnvironmentConfig{
		Driver: "local", Image: "docker.io/library/debian:13", Repo: "https://example.com/a.git", Ref: "main", Setup: "make\nmake install",
		Limits:       &arbev1.Limits{MemoryMb: 512, DiskMb: 1024, Pids: 100, Cpus: 1.5, CommandTimeout: durationpb.New(90 * time.Second), Idle: durationpb.New(2 * time.Hour)},
		Secrets:      []*arbev1.SecretBinding{{Name: "TOKEN"}, {Name: "OPTIONAL", Optional: true}, {Name: "KUBECONFIG", Optional: true, File: "kube.yaml"}},
		Egress:       &arbev1.Egress{Mode: "listed", Sets: []string{"npm"}, Hosts: []string{"example.com:22"}},
		Repositories: []*arbev1.Repository{{Url: "https://example.com/b", Ref: "v1", Depth: 3, Folder: "lib/b"}},
		Git: []*arbev1.GitCredential{
			{Host: "example.com:8443", Secret: "TOKEN", User: "ada", HostKeys: []string{"SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"}},
			{Host: "git.example.com", Secret: "APP_KEY", GithubApp: "4711", GithubApi: "https://git.example.com/api/v3"},
		},
		Start: "make run &", Directory: "a", Labels: map[string]string{"team": "web"},
	}

	t.Run("keeps its whole recipe", func(t *testing.T) {
		git := proto.CloneOf(recipe.Git[0])
		proto.Merge(git, recipe.Git[1]) // an App has other fields than a user
		for _, m := range []proto.Message{recipe, recipe.Limits, recipe.Repositories[0], git, recipe.Secrets[2]} {
			for i, fields := 0, m.ProtoReflect().Descriptor().Fields(); i < fields.Len(); i++ {
				if field := fields.Get(i); !m.ProtoReflect().Has(field) {
					t.Errorf("the recipe of this test has no %s: set it", field.FullName())
				}
			}
		}
		made := ada.environment(t, "<b>web</b>", recipe)
		got, err := get(t, made.Id)
		must(t, err)
		if got.Name != "<b>web</b>" || got.HouseId != ada.house.Id || !proto.Equal(got.Config, recipe) {
			t.Errorf("it is %v", got)
		}
	})
	t.Run("refuses a change that another one overtook, of its name, recipe or secrets", func(t *testing.T) {
		made := ada.environment(t, "edited", recipe)
		for _, change := range []*arbev1.UpdateEnvironmentRequest{
			{Name: new("renamed")}, {Config: &arbev1.EnvironmentConfig{Driver: "local"}}, {Config: &arbev1.EnvironmentConfig{Driver: "local", Secrets: recipe.Secrets}},
		} {
			change.Id, change.Etag = made.Id, made.Etag
			changed, err := ada.Environments.UpdateEnvironment(t.Context(), change)
			must(t, err)
			_, err = ada.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: made.Id, Etag: made.Etag, Name: new("late")})
			if connect.CodeOf(err) != connect.CodeAborted {
				t.Errorf("after %v, a change of the version before: %v", change, err)
			}
			if made, err = get(t, made.Id); err != nil || made.Name == "late" || made.Etag != changed.Environment.Etag {
				t.Errorf("it is %v: %v", made, err)
			}
		}
		must(t, remove(t, made.Id))
	})
	t.Run("names the driver of recipes that name none", func(t *testing.T) {
		list, err := ada.Environments.ListEnvironments(t.Context(), &arbev1.ListEnvironmentsRequest{HouseId: ada.house.Id})
		if err != nil || list.DefaultDriver != sandbox.DefaultDriver {
			t.Errorf("it is %q, %v", list.GetDefaultDriver(), err)
		}
	})
	t.Run("changes by name, by recipe, and the recipe as a whole", func(t *testing.T) {
		made := ada.environment(t, "first", recipe)
		_, err := ada.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: made.Id, Name: new("second")})
		must(t, err)
		if got, err := get(t, made.Id); err != nil || got.Name != "second" || !proto.Equal(got.Config, recipe) {
			t.Errorf("renamed it is %v, %v", got, err)
		}
		_, err = ada.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: made.Id, Config: &arbev1.EnvironmentConfig{Setup: "true"}})
		must(t, err)
		if got, err := get(t, made.Id); err != nil || got.Name != "second" || got.Config.Setup != "true" || got.Config.Repo != "" || got.Config.Limits.GetMemoryMb() != 0 {
			t.Errorf("with another recipe it is %v, %v", got, err)
		}
	})
	for field, config := range map[string]*arbev1.EnvironmentConfig{
		"memory_mb":       {Limits: &arbev1.Limits{MemoryMb: -1}},
		"disk_mb":         {Limits: &arbev1.Limits{DiskMb: 1 << 30}},
		"pids":            {Limits: &arbev1.Limits{Pids: 100_001}},
		"cpus":            {Limits: &arbev1.Limits{Cpus: math.NaN()}},
		"command_timeout": {Limits: &arbev1.Limits{CommandTimeout: durationpb.New(-time.Second)}},
		"NUL":             {Setup: "true\x00"},
	} {
		t.Run("refuses a recipe with a wrong "+field, func(t *testing.T) {
			_, err := ada.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: ada.house.Id, Name: "wrong", Config: config})
			refused(t, err, connect.CodeInvalidArgument, field)
			_, err = ada.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: ada.house.DefaultEnvironmentId, Config: config})
			refused(t, err, connect.CodeInvalidArgument, field)
		})
	}
	t.Run("refuses a driver that there is not, naming those that there are", func(t *testing.T) {
		_, err := ada.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{
			HouseId: ada.house.Id, Name: "wrong", Config: &arbev1.EnvironmentConfig{Driver: "abacus"}})
		refused(t, err, connect.CodeFailedPrecondition, `"abacus"`)
	})
	t.Run("refuses a blank name", func(t *testing.T) {
		_, err := ada.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: ada.house.Id, Name: "  "})
		refused(t, err, connect.CodeInvalidArgument, "name")
	})
	t.Run("in use by a thread, a sandbox or as the default cannot be deleted", func(t *testing.T) {
		named, built := ada.environment(t, "named", nil), ada.environment(t, "built", nil)
		ada.thread(t, &arbev1.CreateThreadRequest{EnvironmentId: named.Id})
		b.exec(t, "insert into sandboxes (house_id, environment_id, provider) values ($1, $2, 'local')", ada.house.Id, built.Id)
		refused(t, remove(t, named.Id), connect.CodeFailedPrecondition, "in use")
		refused(t, remove(t, built.Id), connect.CodeFailedPrecondition, "in use")
		refused(t, remove(t, ada.house.DefaultEnvironmentId), connect.CodeFailedPrecondition, "in use")
	})
	t.Run("is deleted with what is remembered of its dead sandboxes", func(t *testing.T) {
		made := ada.environment(t, "outlived", nil)
		th := ada.thread(t, &arbev1.CreateThreadRequest{})
		b.exec(t, "insert into sandboxes (id, house_id, environment_id, provider, status) values ('departed', $1, $2, 'local', 'dead')", ada.house.Id, made.Id)
		b.exec(t, "update threads set sandbox_id = 'departed' where id = $1", th.Id)
		must(t, remove(t, made.Id))
		if got, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: th.Id}); err != nil || got.Thread.SandboxId != "" {
			t.Errorf("the thread that was on it is %v, %v", got, err)
		}
	})
	t.Run("is deleted, and can be again", func(t *testing.T) {
		made := ada.environment(t, "spare", nil)
		must(t, remove(t, made.Id))
		must(t, remove(t, made.Id))
		_, err := get(t, made.Id)
		refused(t, err, connect.CodeNotFound)
	})
}

// TestAGitHubAppIsTheOwners: its key opens every repository where it is installed, and whoever names its API receives claims.
func TestAGitHubAppIsTheOwners(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, cyd := b.ada, b.cyd
	const owners = "only owners may add a GitHub App"
	app := func(change ...func(*arbev1.GitCredential)) *arbev1.EnvironmentConfig {
		g := &arbev1.GitCredential{Host: "github.com", Secret: "APP_KEY", GithubApp: "4711"}
		for _, c := range change {
			c(g)
		}
		return &arbev1.EnvironmentConfig{Git: []*arbev1.GitCredential{g}}
	}
	create := func(p person, c *arbev1.EnvironmentConfig) error {
		return errOf(p.Environments.CreateEnvironment(t.Context(), &arbev1.CreateEnvironmentRequest{HouseId: ada.house.Id, Name: "with an app", Config: c}))
	}
	refused(t, create(cyd, app()), connect.CodePermissionDenied, owners)
	made := ada.environment(t, "with an app", app())
	update := func(p person, c *arbev1.EnvironmentConfig) error {
		return errOf(p.Environments.UpdateEnvironment(t.Context(), &arbev1.UpdateEnvironmentRequest{Id: made.Id, Config: c}))
	}
	kept := app()
	kept.Setup = "make"
	must(t, update(cyd, kept))
	for name, change := range map[string]func(*arbev1.GitCredential){
		"API": func(g *arbev1.GitCredential) { g.GithubApi = "https://elsewhere.example.com" }, "host": func(g *arbev1.GitCredential) { g.Host = "elsewhere.example.com" },
		"App": func(g *arbev1.GitCredential) { g.GithubApp = "12" }, "secret": func(g *arbev1.GitCredential) { g.Secret = "OTHER" },
	} {
		if err := update(cyd, app(change)); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a member changes the %s: %v", name, err)
		}
		must(t, update(ada, app(change)))
		must(t, update(ada, app()))
	}

	const key = "the secret APP_KEY is a key of a GitHub App"
	refused(t, errOf(cyd.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: ada.house.Id, Name: "APP_KEY", Value: []byte("of a member")})), connect.CodePermissionDenied, key)
	must(t, errOf(ada.Secrets.SetSecret(t.Context(), &arbev1.SetSecretRequest{HouseId: ada.house.Id, Name: "APP_KEY", Value: []byte("of an owner")})))
	refused(t, errOf(cyd.Secrets.DeleteSecret(t.Context(), &arbev1.DeleteSecretRequest{HouseId: ada.house.Id, Name: "APP_KEY", Force: true})), connect.CodePermissionDenied, key)
	refused(t, create(cyd, &arbev1.EnvironmentConfig{Secrets: []*arbev1.SecretBinding{{Name: "APP_KEY"}}}), connect.CodePermissionDenied, key)
	refused(t, create(cyd, app(func(g *arbev1.GitCredential) { g.GithubApp = "" })), connect.CodePermissionDenied, key)
	must(t, create(cyd, &arbev1.EnvironmentConfig{Secrets: []*arbev1.SecretBinding{{Name: "OTHER"}}}))
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// recipe is the config of an environment, as in files and --json.
type recipe struct {
	Driver string `json:"driver,omitempty" yaml:"driver"`
	Image  string `json:"image,omitempty" yaml:"image"`
	Repo   string `json:"repo,omitempty" yaml:"repo"`
	Ref    string `json:"ref,omitempty" yaml:"ref"`
	// Repositories are additional repositories.
	Repositories []recipeRepository `json:"repositories,omitempty" yaml:"repositories"`
	// Git are secrets for the hosts of repositories.
	Git       []recipeGit       `json:"git,omitempty" yaml:"git"`
	Setup     string            `json:"setup,omitempty" yaml:"setup"`
	Start     string            `json:"start,omitempty" yaml:"start"`
	Directory string            `json:"directory,omitempty" yaml:"directory"`
	Labels    map[string]string `json:"labels,omitempty" yaml:"labels"`
	// Secrets are names of secrets. The name of a secret that may be missing ends with a question mark. For a secret that
	// commands receive as a file, "=" and the name of the file follow.
	Secrets []string     `json:"secrets,omitempty" yaml:"secrets"`
	Limits  recipeLimits `json:"limits,omitzero" yaml:"limits"`
	Egress  recipeEgress `json:"egress,omitzero" yaml:"egress"`
}

type recipeRepository struct {
	URL    string `json:"url" yaml:"url"`
	Ref    string `json:"ref,omitempty" yaml:"ref,omitempty"`
	Depth  int32  `json:"depth,omitempty" yaml:"depth,omitempty"`
	Folder string `json:"folder,omitempty" yaml:"folder,omitempty"`
}

type recipeGit struct {
	Host     string   `json:"host" yaml:"host"`
	Secret   string   `json:"secret" yaml:"secret"`
	User     string   `json:"user,omitempty" yaml:"user,omitempty"`
	HostKeys []string `json:"host_keys,omitempty" yaml:"host_keys,omitempty,flow"`
	App      string   `json:"github_app,omitempty" yaml:"github_app,omitempty"`
	API      string   `json:"github_api,omitempty" yaml:"github_api,omitempty"`
}

type recipeEgress struct {
	Mode  string   `json:"mode,omitempty" yaml:"mode"`
	Sets  []string `json:"sets,omitempty" yaml:"sets,flow"`
	Hosts []string `json:"hosts,omitempty" yaml:"hosts,flow"`
}

type recipeLimits struct {
	MemoryMB       int32   `json:"memory_mb,omitempty" yaml:"memory_mb"`
	DiskMB         int32   `json:"disk_mb,omitempty" yaml:"disk_mb"`
	PIDs           int32   `json:"pids,omitempty" yaml:"pids"`
	CPUs           float64 `json:"cpus,omitempty" yaml:"cpus"`
	CommandTimeout string  `json:"command_timeout,omitempty" yaml:"command_timeout"` // such as 10m
	Idle           string  `json:"idle,omitempty" yaml:"idle"`                       // such as 2h
}

func recipeOf(c *arbev1.EnvironmentConfig) recipe {
	l := c.GetLimits()
	r := recipe{
		Driver: c.GetDriver(), Image: c.GetImage(), Repo: c.GetRepo(), Ref: c.GetRef(), Setup: c.GetSetup(),
		Start: c.GetStart(), Directory: c.GetDirectory(), Labels: c.GetLabels(),
		Limits: recipeLimits{MemoryMB: l.GetMemoryMb(), DiskMB: l.GetDiskMb(), PIDs: l.GetPids(), CPUs: l.GetCpus()},
	}
	for _, b := range c.GetSecrets() {
		text := b.GetName()
		if b.GetOptional() {
			text += "?"
		}
		if b.GetFile() != "" {
			text += "=" + b.GetFile()
		}
		r.Secrets = append(r.Secrets, text)
	}
	if e := c.GetEgress(); e != nil {
		r.Egress = recipeEgress{e.GetMode(), e.GetSets(), e.GetHosts()}
	}
	for _, repo := range c.GetRepositories() {
		r.Repositories = append(r.Repositories, recipeRepository{repo.GetUrl(), repo.GetRef(), repo.GetDepth(), repo.GetFolder()})
	}
	for _, g := range c.GetGit() {
		r.Git = append(r.Git, recipeGit{g.GetHost(), g.GetSecret(), g.GetUser(), g.GetHostKeys(), g.GetGithubApp(), g.GetGithubApi()})
	}
	if l.GetCommandTimeout() != nil {
		r.Limits.CommandTimeout = l.GetCommandTimeout().AsDuration().String()
	}
	if l.GetIdle() != nil {
		r.Limits.Idle = l.GetIdle().AsDuration().String()
	}
	return r
}

// config converts the recipe to the contract.
func (r recipe) config() (*arbev1.EnvironmentConfig, error) {
	l := &arbev1.Limits{MemoryMb: r.Limits.MemoryMB, DiskMb: r.Limits.DiskMB, Pids: r.Limits.PIDs, Cpus: r.Limits.CPUs}
	for _, d := range []struct {
		field, text string
		to          **durationpb.Duration
	}{{"command_timeout", r.Limits.CommandTimeout, &l.CommandTimeout}, {"idle", r.Limits.Idle, &l.Idle}} {
		if d.text == "" {
			continue
		}
		given, err := time.ParseDuration(d.text)
		if err != nil || given <= 0 {
			return nil, fault.Newf(fault.Invalid, "write it as 90s or 10m", "limits.%s: %q is not a duration", d.field, d.text)
		}
		*d.to = durationpb.New(given)
	}
	var secrets []*arbev1.SecretBinding
	for _, text := range r.Secrets {
		name, file, _ := strings.Cut(text, "=")
		name, optional := strings.CutSuffix(name, "?")
		secrets = append(secrets, &arbev1.SecretBinding{Name: name, Optional: optional, File: file})
	}
	c := &arbev1.EnvironmentConfig{Driver: r.Driver, Image: r.Image, Repo: r.Repo, Ref: r.Ref, Setup: r.Setup, Limits: l, Secrets: secrets,
		Start: r.Start, Directory: r.Directory, Labels: r.Labels}
	for _, repo := range r.Repositories {
		c.Repositories = append(c.Repositories, &arbev1.Repository{Url: repo.URL, Ref: repo.Ref, Depth: repo.Depth, Folder: repo.Folder})
	}
	for _, g := range r.Git {
		c.Git = append(c.Git, &arbev1.GitCredential{Host: g.Host, Secret: g.Secret, User: g.User, HostKeys: g.HostKeys, GithubApp: g.App, GithubApi: g.API})
	}
	if e := r.Egress; e.Mode != "" || len(e.Sets) > 0 || len(e.Hosts) > 0 {
		c.Egress = &arbev1.Egress{Mode: e.Mode, Sets: e.Sets, Hosts: e.Hosts}
	}
	return c, nil
}

// environmentFile is an environment as a person edits it.
type environmentFile struct {
	Name   string `yaml:"name"`
	recipe `yaml:",inline"`
}

// maxEnvironmentFile limits an environment's file. A setup script has at most 64 KiB.
const maxEnvironmentFile = 256 << 10

func readEnvironment(from io.Reader) (f environmentFile, err error) {
	return f, readYAML(from, &f, maxEnvironmentFile, "the environment", "arbe env show shows what an environment looks like")
}

// readYAML reads a file written by a person, in YAML or JSON, of at most limit bytes. what names its contents, and example
// says which verb shows the format.
func readYAML(from io.Reader, to any, limit int64, what, example string) error {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return fault.New(fault.Invalid, what+" cannot be read", "give it as YAML or JSON").Because(err)
	}
	if int64(len(text)) > limit {
		return fault.Newf(fault.Exhausted, "shorten it", "%s is too large: at most %d KiB", what, limit>>10)
	}
	decode := yaml.NewDecoder(bytes.NewReader(text))
	decode.KnownFields(true) // otherwise a misspelt field would be ignored
	if err := decode.Decode(to); err != nil && !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, explainYAML(err), example).Because(err)
	}
	return nil
}

var (
	unknownField = lazyregexp.New(`line (\d+): field (\S+) not found in type \S+`)
	wrongType    = lazyregexp.New("line (\\d+): cannot unmarshal \\S+ `?(.*?)`? into (\\S+)")
)

// explainYAML says what is wrong with a file. It replaces the library's message, which names Go's types.
func explainYAML(err error) string {
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Sprintf("line %s: there is no field %q", m[1], m[2])
	}
	if m := wrongType.FindStringSubmatch(err.Error()); m != nil {
		must := map[string]string{"int32": "a whole number", "int64": "a whole number", "bool": "true or false", "[]string": "a list", "float64": "a number", "string": "a text"}[m[3]]
		return fmt.Sprintf("line %s: %q is not %s", m[1], m[2], first(must, "what belongs there"))
	}
	return "this is neither YAML nor JSON: " + strings.TrimPrefix(err.Error(), "yaml: ")
}

// text returns the file for an editor, with comments on the fields.
func (f environmentFile) text() ([]byte, error) {
	var doc yaml.Node
	if err := doc.Encode(f); err != nil {
		return nil, err
	}
	comment(&doc, map[string]string{
		"driver":          "the sandbox driver; empty is local",
		"image":           "an OCI image; empty is the driver's own base",
		"repo":            "a git repository that is cloned into new sandboxes",
		"ref":             "its branch, tag or commit; empty is the default branch",
		"repositories":    "additional repositories: a list of {url, ref, depth, folder}",
		"git":             "secrets that open repositories, by host: a list of {host, secret, user}; they never enter a sandbox",
		"setup":           "a shell script that runs once in a new sandbox, after the clone; empty is the repository's own",
		"start":           "a shell script that runs each time a sandbox has started",
		"directory":       "where commands start, below the working tree",
		"labels":          "labels of your choice",
		"idle":            "how long a sandbox may be idle before it is stopped, such as 2h",
		"secrets":         "names of secrets that commands receive as environment variables; NAME? may be missing; NAME=FILE is the file /run/secrets/FILE, and the variable has its path",
		"limits":          "of a sandbox; 0 is the driver's default",
		"egress":          "which hosts of the internet sandboxes reach; from their next command on",
		"mode":            "none, listed (those of sets and hosts), or open (all); empty is listed",
		"sets":            "of npm, go, pypi, crates, debian, github; with an empty mode, none is all of them",
		"hosts":           "such as example.com, example.com:22, *.example.com",
		"command_timeout": "how long one command may take, such as 10m",
	})
	var b bytes.Buffer
	b.WriteString("# An environment: what sandboxes are built from. Existing sandboxes do not change.\n")
	err := writeYAML(&b, &doc)
	return b.Bytes(), err
}

func writeYAML(to io.Writer, doc *yaml.Node) error {
	encode := yaml.NewEncoder(to)
	encode.SetIndent(2)
	return errors.Join(encode.Encode(doc), encode.Close())
}

// comment adds comments above the keys of a mapping and of nested mappings.
func comment(n *yaml.Node, comments map[string]string) {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if text := comments[n.Content[i].Value]; text != "" {
			n.Content[i].HeadComment = text
		}
		comment(n.Content[i+1], comments)
	}
}

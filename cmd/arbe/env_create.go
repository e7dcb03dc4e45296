package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func envCreate(a *app) *cobra.Command {
	var req arbev1.CreateEnvironmentRequest
	var from string
	var flags recipe
	var git []string
	var makeDefault bool
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create an environment",
		Long: "Create an environment from a file (YAML or JSON, as arbe env show prints it), from flags, or from both: a flag\n" +
			"takes precedence. Without NAME, the name in the file is used,\n" +
			"or that of the repository. A repository may say itself what its sandboxes need, for what the environment leaves open:\n" +
			"in setup, start, directory, env, image and limits of its arbe.json, or in postCreateCommand, postStartCommand,\n" +
			"workspaceFolder, containerEnv, remoteEnv, image and hostRequirements of its devcontainer.json. arbe sandbox logs\n" +
			"shows what was used, and what not.\n" +
			"\n" +
			"--git HOST=SECRET opens private repositories at a host with a token: git in sandboxes uses it through the server, and\n" +
			"no program there ever sees it. A secret that is a private key is used by ssh, as the user git or HOST=SECRET=USER. The host\n" +
			"is known by its key: --git git.example.com=DEPLOY_KEY=SHA256:…, as ssh-keygen -lf shows it; github.com's are known.\n" +
			"For a GitHub App, the secret is the App's private key: --git github.com=APP_KEY=app:APP_ID. The server makes tokens with\n" +
			"it that open one repository each and live for an hour. For GitHub Enterprise, =api:URL names an API that is not at\n" +
			"https://HOST/api/v3.",
		Example: "  arbe env create --repo https://github.com/octocat/hello-world --git github.com=GITHUB_TOKEN\n" +
			"  arbe env create --repo https://github.com/octocat/private --git github.com=APP_KEY=app:123456\n" +
			"  arbe env create go --image golang:1.26 --repo https://github.com/octocat/hello-world\n" +
			"  arbe env show go | sed s/1.26/1.25/ | arbe env create go-old --from -",
		Args: takes(0, 1, "at most one name"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			file, err := a.environmentFrom(ctx, from)
			if err != nil {
				return err
			}
			if err := flags.over(&file, git); err != nil {
				return err
			}
			if req.Name = first(firstOf(args), file.Name, nameOfRepo(file.Repo)); req.Name == "" {
				return fault.New(fault.Invalid, "the environment has no name", "give one as the argument, or as name in the file")
			}
			if req.Config, err = file.config(); err != nil {
				return err
			}
			if req.HouseId, err = a.inHouse(ctx, c, req.HouseId); err != nil {
				return err
			}
			return a.createEnvironment(ctx, c, &req, makeDefault)
		}),
	}
	f := cmd.Flags()
	a.houseFlag(cmd, &req.HouseId)
	f.StringVar(&from, "from", "", "file with the environment, YAML or JSON; - is stdin")
	f.StringVar(&flags.Driver, "driver", "", "sandbox driver (default local)")
	f.StringVar(&flags.Image, "image", "", "OCI image (default: the driver's own base)")
	f.StringVar(&flags.Repo, "repo", "", "git repository that is cloned into new sandboxes")
	f.StringVar(&flags.Ref, "ref", "", "its branch, tag or commit (default: the default branch)")
	f.StringVar(&flags.Setup, "setup", "", "shell script that runs once in a new sandbox")
	f.StringVar(&flags.Start, "start", "", "shell script that runs each time a sandbox has started")
	f.StringVar(&flags.Directory, "directory", "", "where commands start, below the working tree")
	f.StringArrayVar(&git, "git", nil, "secret that opens repositories at a host, HOST=SECRET[=USER][=SHA256:…][=app:ID][=api:URL] (repeatable)")
	f.StringArrayVar(&flags.Secrets, "secret", nil, "secret that commands receive as an environment variable, or with NAME=FILE as the file /run/secrets/FILE whose path is in the variable; NAME? may be missing (repeatable)")
	f.StringVar(&flags.Egress.Mode, "egress", "", "which hosts of the internet sandboxes reach: none, listed or open (default: package registries, GitHub, and --allow)")
	f.StringArrayVar(&flags.Egress.Hosts, "allow", nil, "another host that sandboxes reach: example.com, example.com:22 or *.example.com (repeatable)")
	f.BoolVar(&makeDefault, "default", false, "make it the house's default, for threads that name no environment")
	return cmd
}

// over applies flags to a file's recipe. Each of git is HOST=SECRET.
func (flags *recipe) over(file *environmentFile, git []string) error {
	file.Driver, file.Image, file.Repo = first(flags.Driver, file.Driver), first(flags.Image, file.Image), first(flags.Repo, file.Repo)
	file.Ref, file.Setup = first(flags.Ref, file.Ref), first(flags.Setup, file.Setup)
	file.Start, file.Directory = first(flags.Start, file.Start), first(flags.Directory, file.Directory)
	for _, binding := range git {
		host, secret, found := strings.Cut(binding, "=")
		if !found {
			return fault.Newf(fault.Invalid, "give it as HOST=SECRET, such as github.com=GITHUB_TOKEN", "--git: %q names no secret", binding)
		}
		made := recipeGit{Host: host}
		for i, part := range strings.Split(secret, "=") {
			switch {
			case i == 0:
				made.Secret = part
			case strings.HasPrefix(part, "SHA256:"):
				made.HostKeys = append(made.HostKeys, part)
			case strings.HasPrefix(part, "app:"):
				made.App = strings.TrimPrefix(part, "app:")
			case strings.HasPrefix(part, "api:"):
				made.API = strings.TrimPrefix(part, "api:")
			default:
				made.User = part
			}
		}
		file.Git = append(file.Git, made)
	}
	if len(flags.Secrets) > 0 {
		file.Secrets = flags.Secrets
	}
	if file.Egress.Mode = first(flags.Egress.Mode, file.Egress.Mode); len(flags.Egress.Hosts) > 0 {
		file.Egress.Hosts = flags.Egress.Hosts
	}
	return nil
}

// createEnvironment creates an environment, makes it the house's default if requested, and prints it.
func (a *app) createEnvironment(ctx context.Context, c *arbe.Client, req *arbev1.CreateEnvironmentRequest, makeDefault bool) error {
	created, err := c.Environments.CreateEnvironment(ctx, req)
	if err != nil {
		return err
	}
	e := created.GetEnvironment()
	if makeDefault {
		if _, err := c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: e.GetHouseId(), DefaultEnvironmentId: new(e.GetId())}); err != nil {
			return err
		}
	}
	return a.show(e.GetId(), viewEnvironment(e), e.GetId)
}

// nameOfRepo returns a name for an environment with a repository.
func nameOfRepo(repo string) string {
	repo = strings.TrimSuffix(strings.TrimRight(repo, "/"), ".git")
	return repo[strings.LastIndexAny(repo, "/:")+1:]
}

// environmentFrom reads an environment's file. The path - is stdin, and an empty path is an empty environment.
func (a *app) environmentFrom(ctx context.Context, path string) (environmentFile, error) {
	in := a.input(ctx)
	switch path {
	case "":
		return environmentFile{}, nil
	case "-":
	default:
		f, err := os.Open(path)
		if err != nil {
			return environmentFile{}, fault.Newf(fault.Invalid, "name a file that you may read, or - for stdin", "cannot read %s", path).Because(err)
		}
		defer f.Close()
		in = f
	}
	return readEnvironment(in)
}

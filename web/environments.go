package web

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func (a *app) environments(w http.ResponseWriter, r *http.Request) error {
	var v environmentsView
	house := r.PathValue("house")
	var err error
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return err
	}
	res, err := a.services.environments.ListEnvironments(r.Context(), &arbev1.ListEnvironmentsRequest{HouseId: house, PageSize: 200, PageToken: r.URL.Query().Get("page")})
	if err != nil {
		return err
	}
	v.Environments, v.More, v.DefaultDriver = res.Environments, res.NextPageToken, res.DefaultDriver
	return a.show(w, r, http.StatusOK, environmentsPage(v))
}

func (a *app) newEnvironment(w http.ResponseWriter, r *http.Request) error {
	v := environmentView{Values: map[string]string{}}
	var err error
	if v.Layout, err = a.layoutOf(r, r.PathValue("house"), inSettings); err != nil {
		return err
	}
	return a.showEnvironment(w, r, http.StatusOK, v)
}

func (a *app) environment(w http.ResponseWriter, r *http.Request) error {
	v, err := a.environmentView(r)
	if err != nil {
		return err
	}
	v.Values, v.Saved = valuesOf(v.Environment), r.URL.Query().Has("saved")
	return a.showEnvironment(w, r, http.StatusOK, v)
}

// showEnvironment shows the form of an environment.
func (a *app) showEnvironment(w http.ResponseWriter, r *http.Request, status int, v environmentView) error {
	res, err := a.services.environments.ListEnvironments(r.Context(), &arbev1.ListEnvironmentsRequest{HouseId: v.Layout.House.Id, PageSize: 1})
	if err != nil {
		return err
	}
	v.DefaultDriver = res.DefaultDriver
	return a.show(w, r, status, environmentPage(v))
}

func (a *app) environmentView(r *http.Request) (v environmentView, err error) {
	res, err := a.services.environments.GetEnvironment(r.Context(), &arbev1.GetEnvironmentRequest{Id: r.PathValue("environment")})
	if err != nil {
		return v, err
	}
	v.Environment = res.Environment
	v.Layout, err = a.layoutOf(r, res.Environment.HouseId, inSettings)
	return v, err
}

// valuesOf returns an environment as the values of its form.
func valuesOf(e *arbev1.Environment) map[string]string {
	c, l := e.GetConfig(), e.GetConfig().GetLimits()
	number := func(n int32) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(int(n))
	}
	values := map[string]string{
		"name": e.GetName(), "driver": c.GetDriver(), "image": c.GetImage(), "repo": c.GetRepo(), "ref": c.GetRef(), "setup": c.GetSetup(),
		"start": c.GetStart(), "directory": c.GetDirectory(), "memory_mb": number(l.GetMemoryMb()), "disk_mb": number(l.GetDiskMb()), "pids": number(l.GetPids()),
	}
	var bound []string
	for _, b := range c.GetSecrets() {
		name := b.GetName()
		if b.GetOptional() {
			name += "?"
		}
		if b.GetFile() != "" {
			name += "=" + b.GetFile()
		}
		bound = append(bound, name)
	}
	values["secrets"] = strings.Join(bound, " ")
	values["mode"], values["sets"], values["hosts"] = c.GetEgress().GetMode(), strings.Join(c.GetEgress().GetSets(), " "), strings.Join(c.GetEgress().GetHosts(), " ")
	if l.GetCpus() != 0 {
		values["cpus"] = strconv.FormatFloat(l.GetCpus(), 'f', -1, 64)
	}
	var repositories, git []string
	for _, r := range c.GetRepositories() {
		line := r.GetUrl()
		for _, part := range []struct{ name, value string }{{"ref", r.GetRef()}, {"depth", number(r.GetDepth())}, {"folder", r.GetFolder()}} {
			if part.value != "" {
				line += " " + part.name + "=" + part.value
			}
		}
		repositories = append(repositories, line)
	}
	for _, g := range c.GetGit() {
		line := g.GetHost() + "=" + g.GetSecret()
		parts := append([]string{g.GetUser()}, g.GetHostKeys()...)
		if g.GetGithubApp() != "" {
			parts = append(parts, "app:"+g.GetGithubApp())
		}
		if g.GetGithubApi() != "" {
			parts = append(parts, "api:"+g.GetGithubApi())
		}
		for _, part := range parts {
			if part != "" {
				line += "=" + part
			}
		}
		git = append(git, line)
	}
	var labels []string
	for name, value := range c.GetLabels() {
		labels = append(labels, name+"="+value)
	}
	slices.Sort(labels)
	values["labels"] = strings.Join(labels, "\n")
	values["repositories"], values["git"] = strings.Join(repositories, "\n"), strings.Join(git, " ")
	if l.GetCommandTimeout() != nil {
		values["command_timeout"] = shortDuration(l.GetCommandTimeout().AsDuration())
	}
	if l.GetIdle() != nil {
		values["idle"] = shortDuration(l.GetIdle().AsDuration())
	}
	return values
}

// recipeOf reads the form of an environment.
func recipeOf(r *http.Request) (values map[string]string, config *arbev1.EnvironmentConfig, wrong problems) {
	values, wrong = map[string]string{}, problems{}
	for _, field := range environmentFields {
		// Forms encode a line break as CR and LF, but the lines of a setup script must not end with CR.
		values[field] = strings.TrimSpace(strings.ReplaceAll(r.PostFormValue(field), "\r\n", "\n"))
	}
	config = &arbev1.EnvironmentConfig{
		Driver: values["driver"], Image: values["image"], Repo: values["repo"], Ref: values["ref"], Setup: values["setup"], Limits: limitsOf(values, wrong),
		Start: values["start"], Directory: values["directory"],
	}
	words := func(field string) []string { return strings.Fields(strings.ReplaceAll(values[field], ",", " ")) }
	if e := (&arbev1.Egress{Mode: values["mode"], Sets: words("sets"), Hosts: words("hosts")}); e.Mode != "" || len(e.Sets)+len(e.Hosts) > 0 {
		config.Egress = e
	}
	config.Labels = labelsOf(values["labels"], wrong)
	config.Repositories = repositoriesOf(values["repositories"], wrong)
	config.Git = credentialsOf(words("git"), wrong)
	config.Secrets = bindingsOf(words("secrets"))
	return values, config, wrong
}

// limitsOf reads the limits of sandboxes.
func limitsOf(values map[string]string, wrong problems) *arbev1.Limits {
	number := func(field string) int32 {
		if values[field] == "" {
			return 0
		}
		n, err := strconv.ParseInt(values[field], 10, 32)
		if err != nil || n < 1 {
			wrong.add(field, "Write a whole number, or nothing for the default.")
		}
		return int32(n)
	}
	limits := &arbev1.Limits{MemoryMb: number("memory_mb"), DiskMb: number("disk_mb"), Pids: number("pids")}
	if text := values["cpus"]; text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n > 0 && n <= 1024) {
			wrong.add("cpus", "Write a number such as 2 or 0.5, or nothing for the default.")
		}
		limits.Cpus = n
	}
	for field, to := range map[string]**durationpb.Duration{"command_timeout": &limits.CommandTimeout, "idle": &limits.Idle} {
		text := values[field]
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			wrong.add(field, "Write a time such as 90s, 10m or 2h, or nothing for the default.")
		}
		*to = durationpb.New(d)
	}
	return limits
}

// nameOf returns a name for an environment with a repository: the last part of its address.
func nameOf(repo string) string {
	repo = strings.TrimSuffix(strings.TrimRight(repo, "/"), ".git")
	return repo[strings.LastIndexAny(repo, "/:")+1:]
}

// labelsOf reads labels, one in each line: a name, and after the first = its value.
func labelsOf(text string, wrong problems) map[string]string {
	labels := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if _, twice := labels[name]; !ok || name == "" || twice {
			wrong.add("labels", "Write one label in each line, each with its own name, such as team=web.")
		}
		labels[name] = value
	}
	return labels
}

// repositoriesOf reads repositories, one in each line: an address, and ref=, depth= and folder=.
func repositoriesOf(text string, wrong problems) (list []*arbev1.Repository) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		r := &arbev1.Repository{Url: words[0]}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "ref":
				r.Ref = value
			case "folder":
				r.Folder = value
			case "depth":
				n, err := strconv.ParseInt(value, 10, 32)
				if err != nil || n < 1 {
					wrong.add("repositories", "Write the depth as a whole number, such as depth=1.")
				}
				r.Depth = int32(n)
			default:
				wrong.add("repositories", "Write an address in each line, and after it what it needs of ref=, depth= and folder=.")
			}
		}
		list = append(list, r)
	}
	return list
}

// credentialsOf reads git credentials, one in each word: a host, the name of a secret, and what else it needs.
func credentialsOf(words []string, wrong problems) (list []*arbev1.GitCredential) {
	for _, binding := range words {
		parts := append(strings.Split(binding, "="), "")
		if parts[1] == "" {
			wrong.add("git", "Write a host and the name of a secret, such as github.com=GITHUB_TOKEN.")
		}
		made := &arbev1.GitCredential{Host: parts[0], Secret: parts[1]}
		for _, part := range parts[2:] {
			switch {
			case strings.HasPrefix(part, "SHA256:"):
				made.HostKeys = append(made.HostKeys, part)
			case strings.HasPrefix(part, "app:"):
				made.GithubApp = strings.TrimPrefix(part, "app:")
			case strings.HasPrefix(part, "api:"):
				made.GithubApi = strings.TrimPrefix(part, "api:")
			case part != "":
				made.User = part
			}
		}
		list = append(list, made)
	}
	return list
}

// bindingsOf reads the names of secrets, each with a ? if it is optional, and with = and a file if it comes as one.
func bindingsOf(words []string) (list []*arbev1.SecretBinding) {
	for _, name := range words {
		name, file, _ := strings.Cut(name, "=")
		name, optional := strings.CutSuffix(name, "?")
		list = append(list, &arbev1.SecretBinding{Name: name, Optional: optional, File: file})
	}
	return list
}

func (a *app) createEnvironment(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	values, config, wrong := recipeOf(r)
	return a.saveEnvironment(w, r, environmentView{Values: values, Problems: wrong}, func(v *environmentView) (err error) {
		v.Layout, err = a.layoutOf(r, house, inSettings)
		return err
	}, func() (string, error) {
		res, err := a.services.environments.CreateEnvironment(r.Context(), &arbev1.CreateEnvironmentRequest{HouseId: house, Name: cmp.Or(values["name"], nameOf(values["repo"])), Config: config})
		return res.GetEnvironment().GetId(), err
	})
}

// changeEnvironment replaces the name and the recipe of an environment.
func (a *app) changeEnvironment(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	id := r.PathValue("environment")
	values, config, wrong := recipeOf(r)
	return a.saveEnvironment(w, r, environmentView{Values: values, Problems: wrong}, func(v *environmentView) error {
		of, err := a.environmentView(r)
		v.Layout, v.Environment = of.Layout, of.Environment
		return err
	}, func() (string, error) {
		name := values["name"]
		_, err := a.services.environments.UpdateEnvironment(r.Context(), &arbev1.UpdateEnvironmentRequest{Id: id, Etag: r.PostFormValue("etag"), Name: &name, Config: config})
		return id, err
	})
}

// saveEnvironment saves a valid form, and shows an invalid one again with its errors. It redirects after saving, so
// that reloading the page does not save again.
func (a *app) saveEnvironment(w http.ResponseWriter, r *http.Request, v environmentView, complete func(*environmentView) error, save func() (id string, err error)) error {
	status := http.StatusBadRequest
	if len(v.Problems) == 0 {
		id, failed := save()
		if failed == nil {
			http.Redirect(w, r, environmentPath(id)+"?saved", http.StatusSeeOther)
			return nil
		}
		var err error
		if v.Problems, err = problemsOf(failed, environmentFields...); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	if err := complete(&v); err != nil {
		return err
	}
	return a.showEnvironment(w, r, status, v)
}

// deleteEnvironment deletes an environment that nothing uses.
func (a *app) deleteEnvironment(w http.ResponseWriter, r *http.Request) error {
	v, err := a.environmentView(r)
	if err != nil {
		return err
	}
	_, failed := a.services.environments.DeleteEnvironment(r.Context(), &arbev1.DeleteEnvironmentRequest{Id: v.Environment.Id})
	if failed == nil {
		http.Redirect(w, r, settingsPath(v.Layout.House.Id, "environments"), http.StatusSeeOther)
		return nil
	}
	return a.refuseEnvironment(w, r, v, failed)
}

// defaultEnvironment makes an environment the house's default.
func (a *app) defaultEnvironment(w http.ResponseWriter, r *http.Request) error {
	v, err := a.environmentView(r)
	if err != nil {
		return err
	}
	_, failed := a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: v.Layout.House.Id, DefaultEnvironmentId: &v.Environment.Id})
	if failed == nil {
		http.Redirect(w, r, environmentPath(v.Environment.Id)+"?saved", http.StatusSeeOther)
		return nil
	}
	return a.refuseEnvironment(w, r, v, failed)
}

// refuseEnvironment shows an environment with the reason why a change was refused.
func (a *app) refuseEnvironment(w http.ResponseWriter, r *http.Request, v environmentView, failed error) (err error) {
	v.Values = valuesOf(v.Environment)
	if v.Problems, err = problemsOf(failed); err != nil {
		return err
	}
	return a.showEnvironment(w, r, faultOf(failed).Code.HTTPStatus(), v)
}

// allowHost lets the sandboxes of an environment reach a host that was refused to a command of a thread.
func (a *app) allowHost(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	_, err := a.services.environments.AllowHosts(r.Context(), &arbev1.AllowHostsRequest{
		Id: r.PostFormValue("environment"), Hosts: []string{r.PostFormValue("host")}, ThreadId: r.PathValue("thread"),
	})
	return a.doneInThread(w, r, err)
}

// diagnoseEnvironment builds a sandbox of an environment, and shows the result of each step.
func (a *app) diagnoseEnvironment(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	v, err := a.environmentView(r)
	if err != nil {
		return err
	}
	v.Values = valuesOf(v.Environment)
	stream, err := a.services.environments.DiagnoseEnvironment(r.Context(), &arbev1.DiagnoseEnvironmentRequest{Id: v.Environment.Id, Rebuild: r.PostForm.Has("rebuild")})
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if c := stream.Msg().GetCheck(); c != nil {
			v.Checks = append(v.Checks, c)
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return a.showEnvironment(w, r, http.StatusOK, v)
}

package web

import (
	"cmp"
	"slices"
	"strings"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// example is a first message that works in a new house.
type example struct{ Key, Title, Text string }

// examplesOf returns the examples of an empty house. Those that ask a bot name @arbe, or the house's first bot.
func examplesOf(people []*arbev1.Agent) []example {
	list := []example{{"command", "Run a command in a sandbox", "!uname -a; df -h .; ls"}}
	if bot := firstBot(people); bot != "" {
		list = append(list,
			example{"ask", "Ask what a bot can do here", "@" + bot + " What can you do in this house, and which tools do you have?"},
			example{"program", "Have a program written and tried", "@" + bot + " Write a shell script that counts the words of every file in a folder. " +
				"Try it on three files that you make up, and show me the script and its output."})
	}
	return list
}

// firstBot returns the handle of @arbe, or of the first bot; empty if there is none.
func firstBot(people []*arbev1.Agent) (handle string) {
	for _, p := range people {
		if p.Handle == "arbe" {
			return p.Handle
		}
		handle = cmp.Or(handle, p.Handle)
	}
	return handle
}

// exampleText returns the text of an example; empty if there is no such example.
func exampleText(people []*arbev1.Agent, key string) string {
	list := examplesOf(people)
	if i := slices.IndexFunc(list, func(e example) bool { return e.Key == key }); i >= 0 {
		return list[i].Text
	}
	return ""
}

func examplePath(house, key string) string {
	return housePath(house) + "?example=" + key + "#starter-text"
}

// checklist is what a new house needs before people can work in it.
type checklist struct {
	House string
	Items []checkItem
}

// checkItem is a step. Act is the label of the link to Path, which is shown until the step is done.
type checkItem struct {
	Title, About, Act, Path string
	Done                    bool
}

func (c *checklist) done() bool {
	return !slices.ContainsFunc(c.Items, func(i checkItem) bool { return !i.Done })
}

// left returns how many steps are left, in words.
func (c *checklist) left() string {
	n := 0
	for _, i := range c.Items {
		if i.Done {
			n++
		}
	}
	return decimal(n) + " of " + decimal(len(c.Items)) + " done"
}

func newChecklist(h *arbev1.House, models *arbev1.ListModelsResponse, recipes *arbev1.ListEnvironmentsResponse, members *arbev1.ListMembersResponse, invites *arbev1.ListInvitesResponse) *checklist {
	model := checkItem{Title: "A model for the bots", About: "Paste a key of Anthropic, OpenAI, OpenRouter or Google. It is tried before it is saved.", Act: "Paste a key", Path: settingsPath(h.Id, "models") + "#paste-key"}
	if model.Done = models.DefaultModel != "" && models.Problem == ""; model.Done {
		model.About = "Bots answer with " + clip(models.DefaultModel, maxWord) + "."
	} else if slices.ContainsFunc(models.Endpoints, func(e *arbev1.ModelEndpoint) bool { return e.Problem == "" }) {
		model.About, model.Act, model.Path = "There are models. Choose the one that bots use by default.", "Choose a model", settingsPath(h.Id, "models")+"#default-model"
	}
	files := checkItem{Title: "Your repository", About: "Name it in an environment, and every new sandbox starts with its files.", Act: "Name a repository", Path: settingsPath(h.Id, "environments") + "/new"}
	if h.DefaultEnvironmentId != "" {
		files.Path = environmentPath(h.DefaultEnvironmentId)
	}
	for _, e := range recipes.Environments {
		repo := e.GetConfig().GetRepo()
		for _, r := range e.GetConfig().GetRepositories() {
			repo = cmp.Or(repo, r.GetUrl())
		}
		if repo != "" && !files.Done {
			files.Done, files.About = true, "Sandboxes of “"+clip(e.Name, maxWord)+"” start with "+clip(withoutUser(repo), maxText)+"."
		}
	}
	people := 0
	for _, m := range members.Members {
		if m.GetAgent().GetKind() == "human" {
			people++
		}
	}
	invited := checkItem{Title: "Another person", About: "All members see and continue the same threads.", Act: "Invite a person", Path: settingsPath(h.Id, "members") + "#invite", Done: people > 1 || len(invites.Invites) > 0}
	switch {
	case people > 1:
		invited.About = decimal(people) + " people are in " + clip(h.Name, maxWord) + "."
	case invited.Done:
		invited.About = "An invite waits to be used."
	}
	return &checklist{House: h.Id, Items: []checkItem{model, files, invited}}
}

// addSandbox adds whether a sandbox has worked here. The page of the environment can check that, step by step.
func (c *checklist) addSandbox(h *arbev1.House, boxes []*arbev1.Sandbox) {
	item := checkItem{Title: "A sandbox that works", About: "Have one built from your environment, and see each step. Commands and bots run in sandboxes.", Act: "Check it", Path: settingsPath(h.Id, "environments")}
	if h.DefaultEnvironmentId != "" {
		item.Path = environmentPath(h.DefaultEnvironmentId) + "#diagnosis"
	}
	if item.Done = slices.ContainsFunc(boxes, func(b *arbev1.Sandbox) bool { return b.GetUse().GetUsedAt() != nil }); item.Done {
		item.About = "Commands have run in one."
	}
	c.Items = slices.Insert(c.Items, 1, item)
}

// addMissingSecret adds a secret that an environment gives to its sandboxes and the house does not have.
func (c *checklist) addMissingSecret(h *arbev1.House, recipes []*arbev1.Environment, secrets []*arbev1.Secret) {
	for _, e := range recipes {
		for _, b := range e.GetConfig().GetSecrets() {
			if !b.Optional && !slices.ContainsFunc(secrets, func(s *arbev1.Secret) bool { return s.Name == b.Name }) {
				c.Items = append(c.Items, checkItem{Title: "The secret " + clip(b.Name, maxWord), About: "Sandboxes of “" + clip(e.Name, maxWord) + "” need it, and it has no value yet.", Act: "Set it", Path: settingsPath(h.Id, "secrets")})
				return
			}
		}
	}
}

// withoutUser leaves out the part of an address in which somebody may have put a password.
func withoutUser(address string) string {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return address
	}
	host, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	return strings.TrimSuffix(scheme+"://"+host+"/"+path, "/")
}

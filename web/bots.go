package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// botsView is the page of a house's bots, and of what they may cost together.
type botsView struct {
	Layout layout
	Bots   []*arbev1.Bot
	More   string
	// Used is what they have cost today. Limit is the value of the form of what they may cost, and LimitWrong its errors.
	Used       *arbev1.HouseUsage
	Limit      string
	LimitWrong problems
	// Tools are all tools, with whether every bot of the house needs a person's yes for them.
	Tools []*arbev1.Tool
}

// botView is the form of one bot.
type botView struct {
	Layout layout
	// Bot is nil in the form of a new one. AtWork is how many of its turns are at work.
	Bot    *arbev1.Bot
	AtWork int
	// Values are the form's values by field, Tools the tools that are ticked, Problems the errors.
	Values   map[string]string
	Tools    []string
	Problems problems
	// Ask are the tools that are ticked as those that need a person's yes, and Known all tools, with on whose behalf they act.
	Ask   []string
	Known []*arbev1.Tool
	// Models are what the field of the model proposes.
	Models []string
	// Waker has the values of the form that adds a policy.
	Waker map[string]string
	// Note says what the settings do not do.
	Note string
	// Saved reports that it has just been saved.
	Saved bool
}

// toolLabels explain the tools of bots in the form.
var toolLabels = map[string]string{
	entry.RunCommandTool:    "Run commands in the thread's sandbox",
	entry.ReadCommandTool:   "Read the output of the thread's commands",
	entry.StopCommandTool:   "Stop its own commands",
	entry.ReadFileTool:      "Read files of the thread's sandbox",
	entry.WriteFileTool:     "Write files of the thread's sandbox",
	entry.EditFileTool:      "Edit files of the thread's sandbox",
	entry.SearchFilesTool:   "Search files of the thread's sandbox",
	entry.ReadThreadTool:    "Read threads of the house",
	entry.ReadArtifactTool:  "Read artifacts of the house",
	entry.ListThreadsTool:   "List the threads",
	entry.SearchEntriesTool: "Search what was said",
	entry.CreateThreadTool:  "Create threads",
	entry.SayTool:           "Say something in other threads",
	entry.FetchTool:         "Fetch public web pages; the servers there see what it asks for",
}

// runtimes are the coding agents that a bot may run.
var runtimes = []string{"pi", "codex", "claude-code"}

var (
	botLimitFields = []string{"turn_steps", "turn_tokens", "turn_usd", "turn_minutes", "thread_usd_day", "answer_minutes"}
	botFields      = append([]string{"handle", "name", "runtime", "model", "think", "instructions", "tools", "ask"}, botLimitFields...)
	wakerFields    = []string{"trigger", "delay_ms", "cooldown_ms", "scope_ids", "instructions", "config"}
)

// limitsSet reports whether a limit is set or has an error. The form then unfolds the limits, so that it is seen.
func (v botView) limitsSet() bool {
	return slices.ContainsFunc(botLimitFields, func(field string) bool { return v.Values[field] != "" || v.Problems[field] != "" })
}

// action is the address that the form is sent to.
func (v botView) action() string {
	if v.Bot == nil {
		return settingsPath(v.Layout.House.Id, "bots")
	}
	return botPath(v.Layout.House.Id, v.Bot.Id)
}

// proposed are the models that a form proposes: those that the house is known to have.
func (a *app) proposed(ctx context.Context, house string) []string {
	res, err := a.services.models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: house})
	if err != nil { // the form works without proposals
		return nil
	}
	return refsOf(res)
}

// modelAttributes are those of the field of a model, in a map of its own because callers add to it.
func modelAttributes() templ.Attributes {
	return templ.Attributes{"maxlength": "200", "list": "models", "class": "code", "spellcheck": "false", "autocomplete": "off", "autocapitalize": "off"}
}

func (a *app) bots(w http.ResponseWriter, r *http.Request) error {
	v, err := a.botsView(r)
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, botsPage(v))
}

func (a *app) botsView(r *http.Request) (v botsView, err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return v, err
	}
	res, err := a.services.bots.ListBots(r.Context(), &arbev1.ListBotsRequest{HouseId: house, PageSize: 200, PageToken: r.URL.Query().Get("page")})
	if err != nil {
		return v, err
	}
	used, err := a.services.houses.GetHouse(r.Context(), &arbev1.GetHouseRequest{Id: house, Usage: true})
	if err != nil {
		return v, err
	}
	known, err := a.services.bots.ListTools(r.Context(), &arbev1.ListToolsRequest{HouseId: house})
	if err != nil {
		return v, err
	}
	v.Bots, v.More, v.Tools = res.Bots, res.NextPageToken, known.Tools
	v.Used, v.Limit = used.UsedToday, amountOrNone(used.House.GetLimits().GetHouseUsdDay())
	if v.More == "" && !r.URL.Query().Has("page") { // a page of a longer list is not live
		v.Layout.Also = []topic{{"bots", house, botRows{house, v.Bots}.cursor()}}
	}
	return v, nil
}

// limitHouse sets what the bots of a house may cost in a day; an empty field sets the default.
func (a *app) limitHouse(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, text := r.PathValue("house"), strings.TrimSpace(r.PostFormValue("house_usd_day"))
	wrong, status := problems{}, http.StatusBadRequest
	amount := amountOf("house_usd_day", text, wrong)
	if len(wrong) == 0 {
		_, failed := a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Limits: &arbev1.HouseLimits{HouseUsdDay: amount}})
		if failed == nil {
			http.Redirect(w, r, spendingPath(house), http.StatusSeeOther)
			return nil
		}
		var err error
		if wrong, err = problemsOf(failed, "house_usd_day"); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	v, err := a.botsView(r)
	if err != nil {
		return err
	}
	v.Limit, v.LimitWrong = text, wrong
	return a.show(w, r, status, botsPage(v))
}

// askHouse sets the tools that every bot of a house uses only with a person's yes.
func (a *app) askHouse(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	_, err := a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Ask: &arbev1.Names{Values: r.PostForm["ask"]}})
	if err != nil {
		return err
	}
	http.Redirect(w, r, settingsPath(house, "bots")+"#approval", http.StatusSeeOther)
	return nil
}

// spendingPath leads to what the bots of a house may cost.
func spendingPath(house string) string { return settingsPath(house, "bots") + "#spending" }

// spentText says what the bots of a house have cost today: "$1.20 of $50.00 today".
func spentText(u *arbev1.HouseUsage) string {
	text := fmt.Sprintf("$%.2f of $%.2f today", u.GetUsd(), u.GetUsdLimit())
	if u.GetUsdUnknown() {
		text += ", and calls of models whose price is unknown"
	}
	if limit := u.GetPersonUsdLimit(); limit > 0 {
		text += fmt.Sprintf(". With keys of the installation, the houses of its first owner have spent $%.2f of $%.2f", u.GetPersonUsd(), limit)
	}
	if u.GetInstallationSpent() {
		text += fmt.Sprintf(". The $%.2f that all houses together may spend with these keys are spent", u.GetInstallationUsdLimit())
	}
	return text
}

// amountOf reads an amount of US dollars; nothing is 0, for the default.
func amountOf(field, text string, wrong problems) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if text != "" && (err != nil || !(n > 0 && n < 1e9)) {
		wrong.add(field, "Write an amount such as 2 or 0.5, or nothing for the default.")
	}
	return n
}

func (a *app) newBot(w http.ResponseWriter, r *http.Request) error {
	v := botView{Values: map[string]string{}, Tools: entry.DefaultTools}
	return a.showBot(w, r, http.StatusOK, v)
}

func (a *app) bot(w http.ResponseWriter, r *http.Request) error {
	v, err := a.botView(r)
	if err != nil {
		return err
	}
	v.Saved = r.URL.Query().Has("saved")
	return a.showBot(w, r, http.StatusOK, v)
}

// showBot shows a form, whose layout and proposals it adds.
func (a *app) showBot(w http.ResponseWriter, r *http.Request, status int, v botView) (err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return err
	}
	v.Models = a.proposed(r.Context(), house)
	known, err := a.services.bots.ListTools(r.Context(), &arbev1.ListToolsRequest{HouseId: house})
	if err != nil {
		return err
	}
	v.Known = known.Tools
	return a.show(w, r, status, botPage(v))
}

// botView reads the bot of a request's address.
func (a *app) botView(r *http.Request) (v botView, err error) {
	res, err := a.services.bots.GetBot(r.Context(), &arbev1.GetBotRequest{HouseId: r.PathValue("house"), Which: &arbev1.GetBotRequest_Id{Id: r.PathValue("bot")}})
	if err != nil && faultOf(err).Code == fault.Invalid { // an address that nobody made
		return v, fault.New(fault.NotFound, "there is no such bot in this house", "choose a bot under Members and settings")
	} else if err != nil {
		return v, err
	}
	b := res.Bot
	v.Bot, v.Tools, v.Ask, v.AtWork, v.Note = b, b.Tools, b.Ask, int(res.TurnsAtWork), res.Note
	l := b.GetLimits()
	v.Values = map[string]string{"handle": b.Handle, "name": b.Name, "model": b.Model, "think": b.Think, "instructions": b.Instructions, "runtime": b.Runtime,
		"turn_steps": decimalOrNone(int64(l.GetTurnSteps())), "turn_tokens": decimalOrNone(l.GetTurnTokens()), "turn_usd": amountOrNone(l.GetTurnUsd()),
		"turn_minutes": decimalOrNone(int64(l.GetTurnMinutes())), "thread_usd_day": amountOrNone(l.GetThreadUsdDay()),
		"answer_minutes": decimalOrNone(int64(l.GetAnswerMinutes()))}
	return v, nil
}

func decimalOrNone(n int64) string {
	if n == 0 {
		return ""
	}
	return decimal(n)
}

func amountOrNone(n float64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// botOf reads the form of a bot.
func botOf(r *http.Request) (v botView, limits *arbev1.BotLimits) {
	v = botView{Values: map[string]string{}, Problems: problems{}, Tools: r.PostForm["tools"], Ask: r.PostForm["ask"]}
	for _, field := range botFields {
		// Forms encode a line break as CR and LF.
		v.Values[field] = strings.TrimSpace(strings.ReplaceAll(r.PostFormValue(field), "\r\n", "\n"))
	}
	whole := func(field string, bits int) int64 {
		n, err := strconv.ParseInt(v.Values[field], 10, bits)
		if v.Values[field] != "" && (err != nil || n < 1) {
			v.Problems.add(field, "Write a whole number, or nothing for the default.")
		}
		return n
	}
	amount := func(field string) float64 { return amountOf(field, v.Values[field], v.Problems) }
	return v, &arbev1.BotLimits{TurnSteps: int32(whole("turn_steps", 32)), TurnTokens: whole("turn_tokens", 64), TurnUsd: amount("turn_usd"),
		TurnMinutes: int32(whole("turn_minutes", 32)), ThreadUsdDay: amount("thread_usd_day"),
		AnswerMinutes: int32(whole("answer_minutes", 32))}
}

func (a *app) createBot(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	v, limits := botOf(r)
	house := r.PathValue("house")
	return a.saveBot(w, r, v, func() (string, error) {
		made, err := a.services.bots.CreateBot(r.Context(), &arbev1.CreateBotRequest{HouseId: house, Handle: v.Values["handle"], Name: v.Values["name"],
			Runtime: v.Values["runtime"], Model: v.Values["model"], Think: v.Values["think"], Instructions: v.Values["instructions"], Tools: &arbev1.Names{Values: v.Tools}, Ask: &arbev1.Names{Values: v.Ask}, Limits: limits, SkipModelCheck: unchecked(r)})
		if made.GetNote() != "" { // its page shows that
			return botPath(house, made.Bot.Id) + "?saved", err
		}
		return settingsPath(house, "bots"), err
	})
}

func (a *app) changeBot(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, id := r.PathValue("house"), r.PathValue("bot")
	now, err := a.botView(r)
	if err != nil {
		return err
	}
	v, limits := botOf(r)
	v.Bot, v.Values["runtime"] = now.Bot, now.Bot.Runtime
	handle, name, model, think, instructions := v.Values["handle"], v.Values["name"], v.Values["model"], v.Values["think"], v.Values["instructions"]
	return a.saveBot(w, r, v, func() (string, error) {
		_, err := a.services.bots.UpdateBot(r.Context(), &arbev1.UpdateBotRequest{HouseId: house, Id: id, Handle: &handle, Name: &name, Model: &model, Think: &think,
			Instructions: &instructions, Tools: &arbev1.Names{Values: v.Tools}, Ask: &arbev1.Names{Values: v.Ask}, Limits: limits, SkipModelCheck: unchecked(r)})
		return botPath(house, id) + "?saved", err
	})
}

// saveBot saves a valid form, and shows an invalid one again with its errors. It redirects to where save says, so that
// reloading the page does not save again.
func (a *app) saveBot(w http.ResponseWriter, r *http.Request, v botView, save func() (then string, err error)) error {
	status := http.StatusBadRequest
	if len(v.Problems) == 0 {
		then, failed := save()
		if failed == nil {
			http.Redirect(w, r, then, http.StatusSeeOther)
			return nil
		}
		var err error
		if v.Problems, err = problemsOf(failed, botFields...); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	return a.showBot(w, r, status, v)
}

// deleteBot deletes a bot. One that is gone is no error, so that the form may be sent twice.
func (a *app) deleteBot(w http.ResponseWriter, r *http.Request) error {
	house := r.PathValue("house")
	_, failed := a.services.bots.DeleteBot(r.Context(), &arbev1.DeleteBotRequest{HouseId: house, Id: r.PathValue("bot")})
	if failed == nil {
		http.Redirect(w, r, settingsPath(house, "bots"), http.StatusSeeOther)
		return nil
	}
	v, err := a.botView(r)
	if err != nil {
		return err
	}
	if v.Problems, err = problemsOf(failed); err != nil {
		return err
	}
	return a.showBot(w, r, faultOf(failed).Code.HTTPStatus(), v)
}

// messageBot leads to the house's direct message to a bot, which it begins if there is none or another one is wanted.
func (a *app) messageBot(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	res, err := a.services.threads.CreateThread(r.Context(), &arbev1.CreateThreadRequest{HouseId: r.PathValue("house"), ParentAgentId: r.PathValue("bot"),
		Reuse: r.PostFormValue("new") == ""})
	if err != nil {
		return err
	}
	http.Redirect(w, r, threadPath(res.Thread.Id), http.StatusSeeOther)
	return nil
}

// addPolicy gives a bot another thing that wakes it.
func (a *app) addPolicy(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, id := r.PathValue("house"), r.PathValue("bot")
	v, err := a.botView(r)
	if err != nil {
		return err
	}
	v.Waker, v.Problems = map[string]string{}, problems{}
	for _, field := range wakerFields {
		v.Waker[field] = strings.TrimSpace(r.PostFormValue(field))
	}
	config := map[string]any{}
	for _, field := range []string{"delay_ms", "cooldown_ms"} {
		if text := v.Waker[field]; text != "" {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil || n < 0 {
				v.Problems.add(field, "Write a whole number of seconds, or nothing.")
			}
			config[field] = (time.Duration(n) * time.Second).Milliseconds()
		}
	}
	if scope := strings.FieldsFunc(v.Waker["scope_ids"], func(c rune) bool { return c == ' ' || c == ',' }); len(scope) > 0 {
		config["scope_ids"] = scope
	}
	if text := v.Waker["instructions"]; text != "" {
		config["instructions"] = text
	}
	status := http.StatusBadRequest
	if len(v.Problems) == 0 {
		text, err := json.Marshal(config)
		if err != nil {
			return err
		}
		_, failed := a.services.bots.CreatePolicy(r.Context(), &arbev1.CreatePolicyRequest{HouseId: house, BotId: id, Trigger: v.Waker["trigger"], Config: string(text)})
		if failed == nil {
			http.Redirect(w, r, botPath(house, id)+"?saved", http.StatusSeeOther)
			return nil
		}
		if v.Problems, err = problemsOf(failed, wakerFields...); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	// The other form of the page has a field of the same name.
	wrong := problems{}
	for field, what := range v.Problems {
		if field != "" {
			field = "waker-" + field
		}
		wrong[field] = what
	}
	v.Problems = wrong
	return a.showBot(w, r, status, v)
}

// changePolicy turns a policy on or off, or deletes it.
func (a *app) changePolicy(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, id := r.PathValue("house"), r.PathValue("policy")
	var err error
	switch to := r.PostFormValue("to"); to {
	case "on", "off":
		enabled := to == "on"
		_, err = a.services.bots.UpdatePolicy(r.Context(), &arbev1.UpdatePolicyRequest{HouseId: house, Id: id, Enabled: &enabled})
	case "deleted":
		_, err = a.services.bots.DeletePolicy(r.Context(), &arbev1.DeletePolicyRequest{HouseId: house, Id: id})
	default:
		err = fault.New(fault.Invalid, "to: it is not on, off or deleted", "go back and choose one of them")
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, botPath(house, r.PathValue("bot"))+"?saved", http.StatusSeeOther)
	return nil
}

// wakes says in words what a policy does.
func wakes(p *arbev1.Policy) string {
	var config struct {
		Scope    []string `json:"scope_ids"`
		Direct   bool     `json:"direct"`
		Delay    int64    `json:"delay_ms"`
		Cooldown int64    `json:"cooldown_ms"`
	}
	_ = json.Unmarshal([]byte(p.Config), &config) // what cannot be read is of another version, and is shown by its trigger
	seconds := func(ms int64) string { return shortDuration(time.Duration(ms) * time.Millisecond) }
	text := "Another trigger: " + clip(p.Trigger, maxWord)
	switch p.Trigger {
	case "mention":
		text = "Answers when it is mentioned"
	case "always":
		text = "Answers everything that is said"
		if config.Direct {
			text = "Answers direct messages"
		}
	case "ambient":
		text = "Listens, and answers after " + seconds(config.Delay) + " of silence if it has something to add"
	}
	if len(config.Scope) > 0 {
		text += ", in " + clip(strings.Join(config.Scope, ", "), maxWord)
	}
	if config.Cooldown > 0 {
		text += ", at most once in " + seconds(config.Cooldown)
	}
	if len(p.ToolIds) > 0 {
		text += ", with " + clip(strings.Join(p.ToolIds, ", "), maxWord)
	}
	return text
}

// awake summarizes in one line what wakes a bot.
func awake(b *arbev1.Bot) string {
	var words []string
	for _, p := range b.Policies {
		if p.Enabled {
			words = append(words, strings.ToLower(wakes(p)[:1])+wakes(p)[1:])
		}
	}
	if len(words) == 0 {
		return "nothing wakes it"
	}
	return clip(strings.Join(words, "; "), maxWord)
}

// may returns the attributes of a field, which only an owner may change.
func (v botView) may(attributes templ.Attributes) templ.Attributes {
	if !v.Layout.isOwner() {
		attributes["readonly"] = true
	}
	return attributes
}

// deletionText says what goes with a bot, and what stays.
func (v botView) deletionText() string {
	stops := "It is not working on anything now."
	switch {
	case v.AtWork == 1:
		stops = "It is working on 1 turn, which stops."
	case v.AtWork > 1:
		stops = "It is at work on " + grouped(v.AtWork) + " turns, which stop."
	}
	return stops + " It no longer answers, and its API keys are deleted. What it said stays, and its direct messages can still be read."
}

func authorOfBot(b *arbev1.Bot) transcript.Author {
	return authorOf(&arbev1.Agent{Id: b.Id, Kind: "bot", Name: b.Name})
}

// botRows is the view of the list of a house's bots.
type botRows struct {
	house string
	bots  []*arbev1.Bot
}

// sortedBots are the bots that are watched, in the order of ListBots.
func (w *watched) sortedBots() []*arbev1.Bot {
	return slices.SortedFunc(maps.Values(w.bots), func(a, b *arbev1.Bot) int { return strings.Compare(a.Handle, b.Handle) })
}

// cursor is made of the times of changes, because the list itself is rendered only when it has changed.
func (b botRows) cursor() string {
	sum := sha256.New()
	for _, m := range b.bots {
		_, _ = fmt.Fprintln(sum, m.Id, m.Name, m.UpdatedAt.AsTime().UnixMicro()) // no error, because a hash never fails
		for _, p := range m.Policies {
			_, _ = fmt.Fprintln(sum, p.Id, p.UpdatedAt.AsTime().UnixMicro())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

func (b botRows) whole() []patch {
	html, err := rendered(context.Background(), botList(b.house, b.bots))
	if err != nil { // the page keeps what it shows
		return nil
	}
	return []patch{{Selector: "#bot-list", HTML: string(html)}}
}

func (b botRows) since(old view) []patch {
	if was, ok := old.(botRows); ok && was.cursor() == b.cursor() {
		return nil
	}
	return b.whole()
}

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

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// modelsOf returns the models of a house, or nil if they cannot be read: a form works without them.
func (a *app) modelsOf(ctx context.Context, house string) *arbev1.ListModelsResponse {
	res, err := a.services.models.ListModels(ctx, &arbev1.ListModelsRequest{HouseId: house})
	if err != nil {
		a.log.WarnContext(ctx, "web: a form proposes no models", "error", err)
		return nil
	}
	return res
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
	limits := used.House.GetLimits()
	v.Used, v.Limit, v.MemberLimit = used.UsedToday, amountOrNone(limits.GetHouseUsdDay()), amountOrNone(limits.GetMemberUsdDay())
	if v.More == "" && !r.URL.Query().Has("page") { // the pages of a longer list are not live
		v.Layout.Also = []topic{{"bots", house, botRows{house, v.Bots}.cursor()}}
	}
	return v, nil
}

// limitHouse sets what the bots of a house may cost in a day, together and for one person; an empty field sets the default.
func (a *app) limitHouse(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house, text, member := r.PathValue("house"), strings.TrimSpace(r.PostFormValue("house_usd_day")), strings.TrimSpace(r.PostFormValue("member_usd_day"))
	wrong, status := problems{}, http.StatusBadRequest
	limits := &arbev1.HouseLimits{HouseUsdDay: amountOf("house_usd_day", text, wrong), MemberUsdDay: amountOf("member_usd_day", member, wrong)}
	if len(wrong) == 0 {
		_, failed := a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Etag: r.PostFormValue("etag"), Limits: limits})
		if failed == nil {
			http.Redirect(w, r, spendingPath(house), http.StatusSeeOther)
			return nil
		}
		var err error
		if wrong, err = problemsOf(failed, "house_usd_day", "member_usd_day"); err != nil {
			return err
		}
		status = faultOf(failed).Code.HTTPStatus()
	}
	v, err := a.botsView(r)
	if err != nil {
		return err
	}
	v.Limit, v.MemberLimit, v.LimitWrong = text, member, wrong
	return a.show(w, r, status, botsPage(v))
}

// askHouse sets the tools for which every bot of the house needs a person's approval.
func (a *app) askHouse(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	house := r.PathValue("house")
	ask := r.PostForm["ask"]
	_, failed := a.services.houses.UpdateHouse(r.Context(), &arbev1.UpdateHouseRequest{Id: house, Etag: r.PostFormValue("etag"), Ask: &arbev1.Names{Values: ask}})
	if failed == nil {
		http.Redirect(w, r, settingsPath(house, "bots")+"#approval", http.StatusSeeOther)
		return nil
	}
	wrong, err := problemsOf(failed)
	if err != nil || faultOf(failed).Code != fault.Aborted {
		return failed
	}
	v, err := a.botsView(r)
	if err != nil {
		return err
	}
	v.AskWrong, v.Tools = wrong, slices.Clone(v.Tools)
	for i, tool := range v.Tools {
		v.Tools[i] = &arbev1.Tool{Name: tool.Name, Ask: slices.Contains(ask, tool.Name)}
	}
	return a.show(w, r, faultOf(failed).Code.HTTPStatus(), botsPage(v))
}

// amountOf reads an amount of US dollars; empty is 0, for the default.
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

// showBot adds the layout and the proposals to a form and shows it.
func (a *app) showBot(w http.ResponseWriter, r *http.Request, status int, v botView) (err error) {
	house := r.PathValue("house")
	if v.Layout, err = a.layoutOf(r, house, inSettings); err != nil {
		return err
	}
	v.Models = a.modelsOf(r.Context(), house)
	known, err := a.services.bots.ListTools(r.Context(), &arbev1.ListToolsRequest{HouseId: house})
	if err != nil {
		return err
	}
	v.Known = known.Tools
	if v.Bot == nil {
		runtimes, err := a.services.bots.ListRuntimes(r.Context(), &arbev1.ListRuntimesRequest{HouseId: house})
		if err != nil {
			return err
		}
		v.Runtimes = runtimes.Runtimes
	}
	return a.show(w, r, status, botPage(v))
}

// botView reads the bot of a request's address.
func (a *app) botView(r *http.Request) (v botView, err error) {
	res, err := a.services.bots.GetBot(r.Context(), &arbev1.GetBotRequest{HouseId: r.PathValue("house"), Which: &arbev1.GetBotRequest_Id{Id: r.PathValue("bot")}})
	if err != nil && faultOf(err).Code == fault.Invalid { // an address of no page
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
		"answer_minutes": decimalOrNone(int64(l.GetAnswerMinutes())), "run_usd": amountOrNone(l.GetRunUsd()), "run_minutes": decimalOrNone(int64(l.GetRunMinutes()))}
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
	v.Values["model"] = pickedModel(r, "model")
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
		AnswerMinutes: int32(whole("answer_minutes", 32)), RunUsd: amount("run_usd"), RunMinutes: int32(whole("run_minutes", 32))}
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
		if made.GetNote() != "" { // its page shows the note
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
		_, err := a.services.bots.UpdateBot(r.Context(), &arbev1.UpdateBotRequest{HouseId: house, Id: id, Etag: r.PostFormValue("etag"), Handle: &handle, Name: &name, Model: &model, Think: &think,
			Instructions: &instructions, Tools: &arbev1.Names{Values: v.Tools}, Ask: &arbev1.Names{Values: v.Ask}, Limits: limits, SkipModelCheck: unchecked(r)})
		return botPath(house, id) + "?saved", err
	})
}

// saveBot saves a valid form, and shows an invalid one again with its errors. It then redirects to the result of save, so
// that reloading the page does not save again.
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

// deleteBot deletes a bot. A missing bot is not an error, so that the form may be sent twice.
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

// addPolicy adds a policy to a bot.
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
		_, err = a.services.bots.UpdatePolicy(r.Context(), &arbev1.UpdatePolicyRequest{HouseId: house, Id: id, Etag: r.PostFormValue("etag"), Enabled: &enabled})
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

// botRows is the view of the list of a house's bots.
type botRows struct {
	house string
	bots  []*arbev1.Bot
}

// sortedBots returns the watched bots in the order of ListBots.
func (w *watched) sortedBots() []*arbev1.Bot {
	return slices.SortedFunc(maps.Values(w.bots), func(a, b *arbev1.Bot) int { return strings.Compare(a.Handle, b.Handle) })
}

// cursor is derived from the times of changes, because the list is rendered only when it has changed.
func (b botRows) cursor() string {
	sum := sha256.New()
	for _, m := range b.bots {
		_, _ = fmt.Fprintln(sum, m.Id, m.Name, m.UpdatedAt.AsTime().UnixMicro()) // a hash never fails
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

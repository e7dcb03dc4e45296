package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/db/query"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
)

const (
	// DeviceTTL is how long a person has to approve a login of a program.
	DeviceTTL = 10 * time.Minute
	// DeviceInterval is how long a program waits before each poll.
	DeviceInterval = 2 * time.Second

	// minDeviceInterval is how soon a poll is refused. It is shorter, because requests take different times.
	minDeviceInterval = time.Second
	// maxDevices is how many logins of programs may be open, and maxDevicesOfAddress how many of them from one address. Anybody
	// can begin one.
	maxDevices, maxDevicesOfAddress = 10_000, 100
	// maxGuesses is how many wrong codes a person may type within guessesFor. Of 10,000 open logins, that many guesses find
	// one with a probability of 0.000004.
	maxGuesses, guessesFor = 10, 10 * time.Minute
	// maxClient is the longest name of a program, in characters.
	maxClient = 100
)

const (
	// codeLetters are the letters of codes. Without vowels they form no words, and no letter looks like a digit.
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	codeLength  = 8
)

// StartedDevice is a login that a program has begun.
type StartedDevice struct {
	// Secret belongs to the program: only its holder gets the session. A person approves Code.
	Secret, Code string
	ExpiresAt    time.Time
}

// DeviceLogin is a program's login, as shown to the person who answers.
type DeviceLogin struct {
	// Client is the name that the program gives itself. Address is empty if it is not known.
	Code, Client, Address string
	CreatedAt, ExpiresAt  time.Time
}

// BeginDevice begins a login of a program, which expires after [DeviceTTL]. Anybody may begin one, so their number is limited.
// Address is the address of the program, or empty if it is not known.
func (a *Auth) BeginDevice(ctx context.Context, client, address string) (StartedDevice, error) {
	client, err := entry.RequiredName("client", client, maxClient)
	if err != nil {
		return StartedDevice{}, err
	}
	for range 5 {
		begun := StartedDevice{Secret: newToken(), Code: newCode(), ExpiresAt: time.Now().Add(DeviceTTL)}
		outcome, err := a.q.BeginDeviceLogin(ctx, a.db.Pool(), query.BeginDeviceLoginParams{
			Device: digest(begun.Secret), Code: digest(begun.Code), Client: client, Address: address, ExpiresAt: begun.ExpiresAt,
			Most: maxDevices, MostOfAddress: maxDevicesOfAddress,
		})
		switch {
		case err != nil:
			return StartedDevice{}, db.Explain(err)
		case outcome == "ok":
			begun.Code = shownCode(begun.Code)
			return begun, nil
		case outcome == "full":
			return StartedDevice{}, fault.New(fault.Exhausted, "too many logins wait for an answer", "try again in ten minutes, or log in with an API key or a login link").WithReason(fault.LimitReached)
		}
	}
	return StartedDevice{}, errors.New("auth: five new codes are taken")
}

// Device returns the login with a code, and leaves it open. If no login with this code is open, the error is a
// [fault.NotFound] or [fault.Precondition] that says why. The scope's agent has only a few guesses.
func (a *Auth) Device(ctx context.Context, scope db.Scope, code string) (DeviceLogin, error) {
	return a.answerDevice(ctx, scope, code, nil)
}

// AnswerDevice approves or denies the login with a code. Approval logs the program in as the scope's agent. Repeating an
// answer changes nothing. Errors: those of [Auth.Device].
func (a *Auth) AnswerDevice(ctx context.Context, scope db.Scope, code string, approve bool) (DeviceLogin, error) {
	return a.answerDevice(ctx, scope, code, &approve)
}

func (a *Auth) answerDevice(ctx context.Context, scope db.Scope, code string, approve *bool) (DeviceLogin, error) {
	code = cleanCode(code)
	var row query.AnswerDeviceLoginRow
	err := a.db.In(ctx, scope, func(tx pgx.Tx) (err error) {
		row, err = a.q.AnswerDeviceLogin(ctx, tx, query.AnswerDeviceLoginParams{
			Code: digest(code), Approve: approve, Guesses: maxGuesses, GuessesFor: guessesFor.Seconds(),
		})
		return err // an outcome is not returned as an error here: the transaction must commit, because it counts wrong guesses
	})
	if err != nil {
		return DeviceLogin{}, err
	}
	const again = "log in again in your terminal, which shows a new code"
	switch row.Outcome {
	case "ok":
		return DeviceLogin{Code: shownCode(code), Client: row.Client, Address: row.Address, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt}, nil
	case "expired":
		return DeviceLogin{}, fault.New(fault.Precondition, "this code has expired", again)
	case "used":
		return DeviceLogin{}, fault.New(fault.Precondition, "this code was already used", again)
	case "limited":
		return DeviceLogin{}, fault.Newf(fault.Exhausted, "wait ten minutes, and log in again in your terminal", "you have typed %d wrong codes", maxGuesses).WithReason(fault.LimitReached)
	}
	return DeviceLogin{}, fault.New(fault.NotFound, "no login with this code is waiting", "compare it with the code in your terminal")
}

// PollDevice returns the session of the program with a secret, once, if its login was approved. Until somebody has answered, the
// token is empty. Errors: a [fault.Forbidden] if it was denied, a [fault.Unauthenticated] if it is over or not known, and a
// [fault.Exhausted] if the program polls too often.
func (a *Auth) PollDevice(ctx context.Context, secret string) (token string, expires time.Time, p Principal, err error) {
	token, expires = newToken(), time.Now().Add(SessionTTL)
	row, err := a.q.PollDeviceLogin(ctx, a.db.Pool(), query.PollDeviceLoginParams{
		Device: digest(secret), Session: digest(token), ExpiresAt: expires, Interval: minDeviceInterval.Seconds(),
	})
	if err != nil {
		return "", time.Time{}, Principal{}, db.Explain(err)
	}
	const again = "begin again with: arbe login HOST"
	switch row.Outcome {
	case "ok":
		return token, expires, Principal{Agent: row.AgentID, Credential: session, hash: digest(token)}, nil
	case "pending":
		return "", time.Time{}, Principal{}, nil
	case "denied":
		err = fault.New(fault.Forbidden, "this login was denied", again)
	case "early":
		err = fault.Newf(fault.Exhausted, "wait "+DeviceInterval.String()+" between two polls", "the program polls this login too often").WithReason(fault.SlowDown)
	case "expired":
		err = fault.New(fault.Unauthenticated, "nobody approved this login within ten minutes", again)
	case "used":
		err = fault.New(fault.Unauthenticated, "this login was already used", again)
	default:
		err = fault.New(fault.Unauthenticated, "this login is not known", again)
	}
	return "", time.Time{}, Principal{}, err
}

// newCode returns a random code of 34 bits.
func newCode() string {
	code := make([]byte, 0, codeLength)
	for random := make([]byte, 1); len(code) < codeLength; {
		rand.Read(random)
		if n := int(random[0]); n < 256/len(codeLetters)*len(codeLetters) { // so that all letters are equally likely
			code = append(code, codeLetters[n%len(codeLetters)])
		}
	}
	return string(code)
}

// shownCode writes a code as people read it.
func shownCode(code string) string { return code[:codeLength/2] + "-" + code[codeLength/2:] }

// cleanCode reads a code as people type it.
func cleanCode(typed string) string {
	return strings.Map(func(c rune) rune {
		if c == '-' || c == ' ' {
			return -1
		}
		return c
	}, strings.ToUpper(typed))
}

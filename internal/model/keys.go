package model

// keyNames are the secrets of a house that are keys of providers, in the order of preference.
var keyNames = []struct {
	secret   string
	provider Provider
}{
	{"ANTHROPIC_API_KEY", Anthropic}, {"OPENAI_API_KEY", OpenAI}, {"OPENROUTER_API_KEY", OpenRouter}, {"GEMINI_API_KEY", Google},
}

// KeyVariables are the environment variables in which the installation may have keys.
var KeyVariables = []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"}

// KeySecret returns the name of the secret in which a house has its key of a provider; empty if it can have none.
func KeySecret(p Provider) string {
	for _, k := range keyNames {
		if k.provider == p {
			return k.secret
		}
	}
	return ""
}

// CheckSecret checks the value of a secret that is a provider's key, as [Endpoint.Check] does. It accepts every value
// of another secret.
func CheckSecret(name, value string) error {
	for _, k := range keyNames {
		if k.secret == name {
			return Endpoint{Provider: k.provider, Key: value}.Check()
		}
	}
	return nil
}

package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
)

func secretKey(a *app) *cobra.Command {
	return group(a, "secret-key", "Create and replace the key that seals secret values in the database", secretKeyCreate, secretKeyRotate)
}

// secretKeyCreate creates a secret key. It needs no server and no database, because a new installation has neither yet.
func secretKeyCreate(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a secret key (ARBE_SECRET_KEY)",
		Long: "Create a secret key for a new installation, and print it. All servers of one database use the same key, in\n" +
			"ARBE_SECRET_KEY or in the file secret.key of their data directory. Keep it apart from backups of the\n" +
			"database: whoever has both can read the sealed values; without the key nobody can.\n\n" +
			"A server that finds no key creates one in its data directory at its first start.",
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			key, err := server.NewSecretKey()
			if err != nil {
				return err
			}
			if out == "" {
				return a.show(key, secretKeyView{key}, func() string { return key })
			}
			if err := writeNew(out, key+"\n"); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"path": out})
			}
			a.say("the key is in %s", out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write the key to this new file, readable only by you, instead of printing it")
	return cmd
}

// secretKeyRotate works directly on the database, so that it needs no server.
func secretKeyRotate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Seal everything under the first of several secret keys",
		Long: "Seal all secret values in the database of DATABASE_URL, or of the arbe up that runs here, under the\n" +
			"first key of ARBE_SECRET_KEY. To replace a key while servers run:\n\n" +
			"  1. create a new key: arbe secret-key create\n" +
			"  2. on each server, set ARBE_SECRET_KEY (or the file secret.key) to \"OLD NEW\", and restart it\n" +
			"  3. on each server, set it to \"NEW OLD\", and restart it\n" +
			"  4. with \"NEW OLD\", run: arbe secret-key rotate; again, until it changes nothing\n" +
			"  5. on each server, set it to \"NEW\", and restart it\n\n" +
			"A key is the text that arbe secret-key create prints, or the address of a KMS: awskms://… or hashivault://….\n" +
			"Running it again is harmless.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := a.settings(cmd)
			if err != nil {
				return err
			}
			changed, err := server.RotateSecretKey(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]int{"changed": changed})
			}
			if changed == 0 {
				a.say("everything is sealed under the first key")
			} else {
				a.say("%d values are now sealed under the first key", changed)
			}
			return nil
		},
	}
	settingFlags(cmd, "database_url", "secret_key")
	return cmd
}

// writeNew writes a file that only its owner can read. It refuses to replace a file, because an overwritten key would be lost.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fault.Newf(fault.Exists, "name a new file: an overwritten key is lost, with everything that it sealed", "the file %s already exists", path).Because(err)
	case err != nil:
		return fault.Newf(fault.Precondition, "name a file in a directory that you may write to", "the file %s cannot be created", path).Because(err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fault.Newf(fault.Exhausted, "free some space, or name another file", "the file %s cannot be written", path).Because(errors.Join(err, os.Remove(path)))
	}
	return nil
}

type secretKeyView struct {
	SecretKey string `json:"secret_key"`
}

package kms

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// aws is AWS KMS: https://docs.aws.amazon.com/kms/latest/APIReference. The S3 client's library provides the credentials
// and the signature.
type aws struct {
	key, region, endpoint string
	credential            *credentials.Credentials
}

func openAWS(u *url.URL) (service, error) {
	query := u.Query()
	if err := only(query, "region", "endpoint", "profile"); err != nil {
		return nil, err
	}
	key := strings.TrimPrefix(path.Join(u.Host, u.Path), "/")
	region := cmp.Or(query.Get("region"), regionOfARN(key), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if key == "" || region == "" || strings.ContainsAny(region, "/.@:?#") {
		return nil, errors.New("the address names no key, or no region: add ?region=NAME")
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain = "amazonaws.com.cn"
	}
	endpoint := cmp.Or(query.Get("endpoint"), "https://kms."+region+"."+domain) + "/"
	if to, err := url.Parse(endpoint); err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
		return nil, errors.New("the endpoint is not a URL")
	}
	return &aws{key, region, endpoint, credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{Profile: query.Get("profile")},
		&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
	})}, nil
}

// regionOfARN returns the region that an ARN of a key names, or "".
func regionOfARN(key string) string {
	if parts := strings.Split(key, ":"); len(parts) > 3 && parts[0] == "arn" {
		return parts[3]
	}
	return ""
}

func (a *aws) request(ctx context.Context, unwrap bool, value []byte) (*http.Request, error) {
	action, body := "Encrypt", map[string]any{"KeyId": a.key, "Plaintext": value}
	if unwrap {
		// Without KeyId, because the ciphertext names its key, even after the alias has moved to another key.
		action, body = "Decrypt", map[string]any{"CiphertextBlob": value}
	}
	request, encoded, err := post(ctx, a.endpoint, body)
	if err != nil {
		return nil, err
	}
	credential, err := a.credential.GetWithContext(&credentials.CredContext{Client: client})
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(encoded)
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", "TrentService."+action)
	request.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(hash[:]))
	return signer.SignV4WithServiceType(*request, credential.AccessKeyID, credential.SecretAccessKey, credential.SessionToken, a.region, "kms"), nil
}

func (a *aws) result(unwrap bool, body []byte) ([]byte, error) {
	var answer struct{ CiphertextBlob, Plaintext []byte }
	err := json.Unmarshal(body, &answer)
	value := answer.CiphertextBlob
	if unwrap {
		value = answer.Plaintext
	}
	if err == nil && len(value) == 0 {
		err = errors.New("the KMS answers without a value")
	}
	return value, err
}

func (a *aws) otherKey(_ int, body []byte) bool {
	var answer struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(body, &answer)
	kind := answer.Type[strings.LastIndexByte(answer.Type, '#')+1:] // some services prefix their namespace
	return kind == "InvalidCiphertextException" || kind == "IncorrectKeyException" || kind == "InvalidKeyUsageException"
}

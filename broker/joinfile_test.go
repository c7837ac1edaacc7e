package broker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/internal/secret"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// jwt returns a token that expires at exp, as API servers make them.
func jwt(exp time.Time) broker.Secret {
	part := base64.RawURLEncoding.EncodeToString
	return broker.Secret(
		part([]byte(`{"alg":"RS256"}`)) + "." + part(fmt.Appendf(nil, `{"exp":%d}`, exp.Unix())) + "." +
			part([]byte("signature")))
}

func joinFile() *broker.JoinFile {
	administrator := brokertest.Key("administrator")
	return &broker.JoinFile{
		BrokerURL: "https://hub.example.com:6443", CA: []byte("PEM"), Namespace: "submariner-k8s-broker",
		Token: jwt(noon), PSK: broker.Secret(strings.Repeat("0123456789abcdef", 3)),
		Components: []string{"service-discovery", "connectivity"},
		SigningKey: administrator, Administrator: administrator.Public(),
	}
}

// invited returns the file for one cluster, whose invitation ends at until.
func invited(t *testing.T, until time.Time) *broker.JoinFile {
	f := joinFile()
	f.SigningKey = brokertest.Key("invitee")
	var err error
	f.Invitation, err = brokertest.Key("administrator").SignInvitation(trust.Invitation{
		Key:      f.SigningKey.Public(),
		Cluster:  "east",
		Gateways: 2,
		Sets:     []string{"default"},
		Serial:   1,
		Expires:  until.UnixMilli(),
	})
	require.NoError(t, err)
	return f
}

// The keys are a promise: upstream's subctl reads and writes them.
func TestWireFormat(t *testing.T) {
	f := joinFile()
	f.Token = broker.Secret("TOKEN")
	b, err := f.Encode()
	require.NoError(t, err)
	require.NotContains(t, string(b), "\n")
	plain, err := base64.URLEncoding.DecodeString(string(b))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"brokerURL": "https://hub.example.com:6443",
		"ClientToken": {
			"metadata": {"name": "submariner-k8s-broker-admin-token", "namespace": "submariner-k8s-broker"},
			"type": "kubernetes.io/service-account-token",
			"data": {"ca.crt": "UEVN", "namespace": "c3VibWFyaW5lci1rOHMtYnJva2Vy", "token": "VE9LRU4="}
		},
		"IPSecPSK": {
			"metadata": {"name": "submariner-ipsec-psk"},
			"data": {"psk": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"}
		},
		"ServiceDiscovery": false,
		"Components": ["connectivity", "service-discovery"],
		"CustomDomains": null,
		"Trust": {
			"signingKey": "`+base64.StdEncoding.EncodeToString(f.SigningKey.Seed())+`",
			"administrator": "`+f.Administrator.String()+`"
		}
	}`, string(plain))
}

func TestDecodeIgnoresCase(t *testing.T) {
	f := joinFile()
	b, err := f.Encode()
	require.NoError(t, err)
	plain, err := base64.URLEncoding.DecodeString(string(b))
	require.NoError(t, err)
	odd := strings.NewReplacer("brokerURL", "BROKERurl", "ClientToken", "clientToken", "IPSecPSK", "ipsecPsk",
		"Components", "components").Replace(string(plain))
	got, err := broker.DecodeJoinFile([]byte(base64.URLEncoding.EncodeToString([]byte(odd))))
	require.NoError(t, err)
	f.Components = []string{"connectivity", "service-discovery"}
	require.Equal(t, f, got)
}

func TestReadJoinFile(t *testing.T) {
	good, err := joinFile().Encode()
	require.NoError(t, err)
	wire := func(change func(map[string]any)) []byte {
		plain, _ := base64.URLEncoding.DecodeString(string(good))
		var m map[string]any
		require.NoError(t, json.Unmarshal(plain, &m))
		change(m)
		plain, err := json.Marshal(m)
		require.NoError(t, err)
		return []byte(base64.URLEncoding.EncodeToString(plain))
	}
	file := filepath.Join(t.TempDir(), "f")
	foreign := "join file " + file + " is not a join file: subctl deploy-broker writes join files"
	cut := "join file " + file + " is truncated or damaged: copy the whole file again"
	for name, tc := range map[string]struct {
		content []byte
		now     time.Time
		want    string
	}{
		"good":                 {good, noon.Add(-time.Second), ""},
		"a newline at the end": {append(bytes.Clone(good), '\n'), noon.Add(-time.Second), ""},
		"expired": {
			good,
			noon,
			"join file " + file +
				" expired at 2026-03-01T12:00:00Z: run subctl deploy-broker again where it was made, or subctl recover-broker-info",
		},
		"empty":              {nil, noon, "join file " + file + " is empty: copy it again"},
		"cut":                {good[:len(good)/2], noon, cut},
		"cut anywhere":       {good[:len(good)-5], noon, cut},
		"damaged":            {bytes.Replace(good, good[40:44], []byte("\x00!!!"), 1), noon, cut},
		"text":               {[]byte("apiVersion: v1\n"), noon, foreign},
		"base64 of text":     {[]byte(base64.URLEncoding.EncodeToString([]byte("hello, world"))), noon, foreign},
		"JSON of others":     {[]byte(base64.URLEncoding.EncodeToString([]byte(`{"kind":"Pod"}`))), noon, foreign},
		"JSON of other type": {[]byte(base64.URLEncoding.EncodeToString([]byte(`[1]`))), noon, foreign},
		"binary":             {[]byte{0, 1, 2, 255}, noon, foreign},
		"no key": {
			wire(func(m map[string]any) { delete(m, "IPSecPSK") }),
			noon,
			"join file " + file + " lacks psk: make a new one with subctl deploy-broker or recover-broker-info",
		},
		"no signing key": {
			wire(func(m map[string]any) { delete(m, "Trust") }),
			noon,
			"join file " + file +
				" has no signing key, without which no cluster trusts another: make a new one with subctl deploy-broker; only its pre-shared key can be used, with --ipsec-psk-from",
		},
		"another administrator": {wire(func(m map[string]any) {
			m["Trust"].(map[string]any)["administrator"] = brokertest.Key("x").Public().String()
		}), noon, cut},
		"half a signing key": {
			wire(func(m map[string]any) { m["Trust"].(map[string]any)["signingKey"] = "YQ==" }),
			noon,
			cut,
		},
		"no administrator": {
			wire(func(m map[string]any) { delete(m["Trust"].(map[string]any), "administrator") }),
			noon,
			cut,
		},
		"for one cluster": {encoded(t, invited(t, noon)), noon.Add(-time.Second), ""},
		"for one cluster, expired": {
			encoded(t, invited(t, noon.Add(-time.Hour))),
			noon.Add(-time.Minute),
			"join file " + file +
				" expired at 2026-03-01T11:00:00Z: ask the administrator of the broker for a new one, which subctl invite writes",
		},
		"invitation for another key": {
			wire(func(m map[string]any) {
				m["Trust"].(map[string]any)["invitation"] = invited(t, noon).Invitation
			}),
			noon,
			"join file " + file +
				" contains an invalid invitation: its key is not the key of its invitation: ask for a new file, which subctl invite writes",
		},
		"invitation of nobody": {
			wire(func(m map[string]any) { m["Trust"].(map[string]any)["invitation"] = "a.b.c" }),
			noon,
			"join file " + file +
				" contains an invalid invitation: its invitation is not valid: it is not a JSON Web Signature with Ed25519: ask for a new file, which subctl invite writes",
		},
		"no token": {
			wire(func(m map[string]any) { delete(m, "ClientToken") }),
			noon,
			"join file " + file +
				" lacks ca.crt, namespace, token: make a new one with subctl deploy-broker or recover-broker-info",
		},
		"bad URL": {
			wire(func(m map[string]any) { m["brokerURL"] = "hub" }),
			noon,
			"join file " + file +
				` has the broker URL "hub", which is not https://host:port: make a new one with subctl deploy-broker --broker-url`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, tc.content, 0o600))
			f, err := broker.ReadJoinFile(file, nil, tc.now)
			if tc.want == "" {
				require.NoError(t, err)
				require.Equal(t, "submariner-k8s-broker", f.Namespace)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
	_, err = broker.ReadJoinFile(filepath.Join(filepath.Dir(file), "none"), nil, noon)
	require.ErrorContains(t, err,
		"none: no such file or directory: specify the path of the join file; if you have none, ask the administrator of the broker for one")
}

func encoded(t *testing.T, f *broker.JoinFile) []byte {
	t.Helper()
	content, err := f.Encode()
	require.NoError(t, err)
	return content
}

func TestWriteFileKeepsTheOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), broker.JoinFileName)
	f := joinFile()
	kept, err := f.WriteFile(path, noon)
	require.NoError(t, err)
	require.Empty(t, kept)
	for i := range 3 { // also twice in a second
		f.BrokerURL = fmt.Sprintf("https://hub-%d", i)
		kept, err = f.WriteFile(path, noon)
		require.NoError(t, err)
		if i == 0 {
			require.Equal(t, path+".2026-03-01T12_00_00Z", kept)
		}
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 4, "every older file is kept, and nothing else left")
	_, err = f.WriteFile(filepath.Join(path, "x"), noon)
	require.Error(t, err)
}

// TestWriteFileRegular writes only regular files: others stay what they are.
func TestWriteFileRegular(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	link := filepath.Join(dir, "link")
	pipe := filepath.Join(dir, "pipe")
	dangling := filepath.Join(dir, "dangling")
	require.NoError(t, os.WriteFile(real, nil, 0o600))
	require.NoError(t, os.Symlink("real", link))
	require.NoError(t, os.Symlink("nowhere", dangling))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	f := joinFile()
	for path, want := range map[string]string{
		pipe: `"` + pipe + `" is not a regular file: specify a file, or - for stdout`,
		dir:  `"` + dir + `" is a directory: specify a file in it, such as ` + dir + "/broker-info.subm",
		dangling: `"` + dangling +
			`" is a symbolic link to a file that does not exist: delete it, or specify another file`,
	} {
		require.EqualError(t, broker.CheckWritable(path), want)
		_, err := f.WriteFile(path, noon)
		require.EqualError(t, err, "writing join file: "+want)
	}
	kept, err := f.WriteFile(link, noon)
	require.NoError(t, err)
	require.Equal(t, real+".2026-03-01T12_00_00Z", kept, "the link stays, and its file is kept")
	to, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, "real", to)
	_, err = broker.ReadOldJoinFile(real, nil)
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 5)
}

func TestReadJoinFileStdin(t *testing.T) {
	content, err := joinFile().Encode()
	require.NoError(t, err)
	got, err := broker.ReadOldJoinFile("-", bytes.NewReader(append(content, '\n')))
	require.NoError(t, err)
	require.Equal(t, joinFile().BrokerURL, got.BrokerURL)
	_, err = broker.ReadJoinFile("-", bytes.NewReader(content), noon.Add(time.Hour))
	require.ErrorContains(t, err, "join file on stdin expired at ")
	_, err = broker.ReadOldJoinFile("/dev/zero", nil)
	require.EqualError(t, err, "join file /dev/zero is not a join file: subctl deploy-broker writes join files")
}

func TestSecretsDoNotShow(t *testing.T) {
	f := joinFile()
	f.Token = broker.Secret("sesame-open")
	f.PSK = broker.Secret("sesame-shut")
	asJSON, err := json.Marshal(f)
	require.NoError(t, err)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "file", f, "psk", f.PSK)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "file", f, "psk", f.PSK)
	all := fmt.Sprintf("%v %+v %#v %s %q %x %d", f, *f, f, f.PSK, f.PSK, f.PSK, f.PSK) + string(asJSON) + log.String()
	for _, secret := range []string{
		"sesame",
		fmt.Sprintf("%x", "sesame"),
		base64.StdEncoding.EncodeToString([]byte("sesame"))[:6],
		"115 101 115",
		"0x73, 0x65",
	} {
		require.NotContains(t, all, secret)
	}
	seed := f.SigningKey.Seed()
	for _, secret := range []string{
		base64.StdEncoding.EncodeToString(seed),
		fmt.Sprintf("%x", seed),
		strings.Trim(fmt.Sprint(seed), "[]"),
	} {
		require.NotContains(t, all, secret)
	}
	require.Contains(t, all, secret.Hidden)
}

func TestFingerprint(t *testing.T) {
	require.Equal(t, broker.Fingerprint(broker.Secret("a")), broker.Fingerprint(broker.Secret("a")))
	require.NotEqual(t, broker.Fingerprint(broker.Secret("a")), broker.Fingerprint(broker.Secret("b")))
	require.Len(t, broker.Fingerprint(nil), 32)
}

// FuzzJoinFile: whatever is in a join file, reading it fails with a short message or returns what
// can be written and read again.
func FuzzJoinFile(f *testing.F) {
	good, err := joinFile().Encode()
	require.NoError(f, err)
	plain, err := base64.URLEncoding.DecodeString(string(good))
	require.NoError(f, err)
	long := bytes.Replace(plain, []byte(":6443"), bytes.Repeat([]byte(":n"), 2000), 1)
	require.NotEqual(f, plain, long)
	for _, seed := range [][]byte{
		good,
		plain,
		long,
		nil,
		[]byte("{}"),
		[]byte("null"),
		[]byte(`{"brokerURL":"x"}`),
		good[:len(good)/2],
		[]byte(`{"ClientToken":{"data":{"token":"AAAA"}}}`),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, text := range [][]byte{content, []byte(base64.URLEncoding.EncodeToString(content))} {
			file, err := broker.DecodeJoinFile(text)
			if err != nil {
				require.Less(t, len(err.Error()), 2000)
				continue
			}
			_ = file.RESTConfig(false)
			_ = file.Expired(noon)
			again, err := file.Encode()
			require.NoError(t, err)
			same, err := broker.DecodeJoinFile(again)
			require.NoError(t, err)
			slices.Sort(file.Components)
			slices.Sort(same.Components)
			require.Equal(t, file, same)
		}
	})
}

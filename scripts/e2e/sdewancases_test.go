//go:build e2e

package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// casesNetwork is a network whose addresses the plugin chooses: two pods cannot have one address.
const casesNetwork = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: wan}
spec:
  config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "lan", "ipam": {"type": "host-local", "subnet": "172.30.0.0/24"}}'
`

func mwan3(name, policy, more string) string {
	if policy == "" {
		return fmt.Sprintf(
			"---\napiVersion: batch.sdewan.akraino.org/v1alpha1\nkind: Mwan3Policy\nmetadata: {name: %s, labels: {sdewanPurpose: cnf}}\nspec: {members: [{network: wan, weight: 2, metric: 2}]}\n",
			name)
	}
	return fmt.Sprintf(
		"---\napiVersion: batch.sdewan.akraino.org/v1alpha1\nkind: Mwan3Rule\nmetadata: {name: %s, labels: {sdewanPurpose: cnf}}\nspec: {policy: %s, src_ip: 192.168.1.2, proto: tcp, %s}\n",
		name, policy, more)
}

// unusual is a case of the proposal: its namespace has a CNF of two pods.
type unusual struct {
	namespace string
	victim    string // the pod
	node      string // of it
	ip        string
}

// The seed's four unusual cases: rule 1 is deleted, rule 3 added, and rule 2 changed (except in
// case 4) while CNF-pod-1 is down, while it is cut off but running, while the controller is down,
// and while both are down. Then all is as it should be, on both pods.
func sdewanCases(t *testing.T) {
	var all []*unusual
	for i := range 4 {
		c := &unusual{namespace: fmt.Sprintf("case%d", i+1)}
		all = append(all, c)
		kubectl(t, sdewanCluster, "create", "namespace", c.namespace)
		applyIn(t, c.namespace, casesNetwork)
		cnf := rendered(t, "cnf", "--purpose", "cnf", "-n", c.namespace, "--networks", "wan", "--uplinks",
			"wan=172.30.0.1", "--replicas", "2")
		// or the test takes 25 s longer
		cnf = strings.NewReplacer("failureThreshold: 5", "failureThreshold: 2", "periodSeconds: 5",
			"periodSeconds: 1").Replace(cnf)
		applyIn(t, c.namespace, cnf)
		applyIn(t, c.namespace,
			mwan3("policy-1", "", "")+mwan3("rule-1", "policy-1", "dest_port: 81")+
				mwan3("rule-2", "policy-1", "dest_port: 82"))
	}
	for _, c := range all {
		kubectl(t, sdewanCluster, "-n", c.namespace, "rollout", "status", "deployment/cnf", "--timeout=120s")
		inSync(t, c.namespace)
		for _, p := range c.pods(t) {
			require.Equal(t, []string{"rule-1 81", "rule-2 82"}, c.rules(t, p), "%s", p)
		}
		c.choose(t)
	}

	// Cases 1 and 2. A pod that is gone stays gone: no node takes a new one.
	for _, n := range nodes(sdewanCluster) {
		kubectl(t, sdewanCluster, "cordon", n)
	}
	all[0].kill(t)
	all[1].cut(t)
	for _, c := range all[:2] {
		c.notInSync(t)
		c.change(t, true)
	}
	time.Sleep(3 * time.Second)
	for _, c := range all[:2] {
		out := kubectl(t, sdewanCluster, "-n", c.namespace, "get", "mwan3rule", "rule-1", "-o",
			"jsonpath={.metadata.deletionTimestamp}")
		require.NotEmpty(t, out, "rule 1 waits for the pod")
	}
	all[1].heal(t)
	for _, n := range nodes(sdewanCluster) {
		kubectl(t, sdewanCluster, "uncordon", n)
	}
	for _, c := range all[:2] {
		c.settled(t, 92)
	}

	// Cases 3 and 4.
	kubectl(t, sdewanCluster, "-n", "sdewan-system", "scale", "deployment/sdewan-controller", "--replicas=0")
	eventually(t, 30*time.Second, func() error {
		if out := kubectl(t, sdewanCluster, "-n", "sdewan-system", "get", "pods", "-l", "app=sdewan-controller", "-o",
			"name"); out != "" {
			return fmt.Errorf("the controller still runs: %s", out)
		}
		return nil
	})
	all[3].kill(t)
	all[2].change(t, true)
	all[3].change(t, false)
	kubectl(t, sdewanCluster, "-n", all[3].namespace, "rollout", "status", "deployment/cnf", "--timeout=120s")
	for _, p := range all[3].pods(t) {
		if p != all[3].victim {
			t.Logf("case 4, before the controller is back, pod %s: %v", p, all[3].rules(t, p))
		}
	}
	kubectl(t, sdewanCluster, "-n", "sdewan-system", "scale", "deployment/sdewan-controller", "--replicas=2")
	all[2].settled(t, 92)
	all[3].settled(t, 82)
}

// choose chooses CNF-pod-1.
func (c *unusual) choose(t *testing.T) {
	t.Helper()
	c.victim = c.pods(t)[0]
	f := strings.Fields(
		kubectl(t, sdewanCluster, "-n", c.namespace, "get", "pod", c.victim, "-o",
			"jsonpath={.spec.nodeName} {.status.podIP}"),
	)
	c.node = f[0]
	c.ip = f[1]
}

// pods returns the pods of the CNF that are not ending.
func (c *unusual) pods(t *testing.T) (out []string) {
	t.Helper()
	list := kubectl(t, sdewanCluster, "-n", c.namespace, "get", "pods", "-l", "sdewanPurpose=cnf", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) == 1 {
			out = append(out, f[0])
		}
	}
	require.NotEmpty(t, out, list)
	return out
}

func (c *unusual) kill(t *testing.T) {
	t.Helper()
	kubectl(t, sdewanCluster, "-n", c.namespace, "delete", "pod", c.victim, "--now")
}

// cut drops what others send to the pod, on its node. The pod runs.
func (c *unusual) cut(t *testing.T) {
	t.Helper()
	on(
		t,
		c.node,
		fmt.Sprintf(
			`nft 'add table ip %[1]s; add chain ip %[1]s o { type filter hook output priority -500; }; add chain ip %[1]s f { type filter hook forward priority -500; };
		add rule ip %[1]s o ip daddr %[2]s drop; add rule ip %[1]s f ip daddr %[2]s drop'`,
			c.namespace,
			c.ip,
		),
	)
}

func (c *unusual) heal(t *testing.T) {
	t.Helper()
	on(t, c.node, "nft delete table ip "+c.namespace)
}

// notInSync waits until the controller has seen that a pod is not ready: appliedVersion is cleared.
func (c *unusual) notInSync(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		out := kubectl(t, sdewanCluster, "-n", c.namespace, "get", "mwan3rules", "-o",
			`jsonpath={range .items[*]}{.metadata.name}:{.status.inSync}:{.status.appliedVersion} {end}`)
		if out != "rule-1:false: rule-2:false: " {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// change does what the proposal does while something is down.
func (c *unusual) change(t *testing.T, second bool) {
	t.Helper()
	kubectl(t, sdewanCluster, "-n", c.namespace, "delete", "mwan3rule", "rule-1", "--wait=false")
	text := mwan3("rule-3", "policy-1", "dest_port: 83")
	if second {
		text += mwan3("rule-2", "policy-1", "dest_port: 92")
	}
	applyIn(t, c.namespace, text)
}

// settled requires that both pods have the latest configuration, and nothing twice.
func (c *unusual) settled(t *testing.T, second int) {
	t.Helper()
	kubectl(t, sdewanCluster, "-n", c.namespace, "rollout", "status", "deployment/cnf", "--timeout=120s")
	inSync(t, c.namespace)
	eventually(t, 20*time.Second, func() error {
		if out := kubectl(t, sdewanCluster, "-n", c.namespace, "get", "mwan3rules", "-o", "name"); strings.Contains(out,
			"rule-1") {
			return fmt.Errorf("rule 1 is still there: %s", out)
		}
		return nil
	})
	pods := c.pods(t)
	require.Len(t, pods, 2)
	for _, p := range pods {
		require.Equal(t, []string{fmt.Sprintf("rule-2 %d", second), "rule-3 83"}, c.rules(t, p), "%s of %s", p,
			c.namespace)
	}
	t.Logf("%s: both pods have rule-2 and rule-3", c.namespace)
}

// rules asks a pod for its rules of mwan3, by its REST API, through the API server.
func (c *unusual) rules(t *testing.T, pod string) (out []string) {
	t.Helper()
	password, err := base64.StdEncoding.DecodeString(
		kubectl(t, sdewanCluster, "-n", c.namespace, "get", "secret", "cnf-account", "-o", "jsonpath={.data.password}"))
	require.NoError(t, err)
	client, server := apiServer(t)
	base := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/https:%s:443/proxy/cgi-bin/luci/", server, c.namespace, pod)
	ask := func(method, path, cookie, body string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		req.Header.Set("Cookie", cookie)
		answer, err := client.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	login := ask(http.MethodPost, "", "", "luci_username=root&luci_password="+url.QueryEscape(string(password)))
	require.Equal(t, http.StatusFound, login.StatusCode)
	cookie, _, _ := strings.Cut(login.Header.Get("Set-Cookie"), ";")
	answer := ask(http.MethodGet, "sdewan/mwan3/v1/rules", cookie, "")
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", text)
	var list struct {
		Rules []struct {
			Name string `json:"name"`
			Port string `json:"dest_port"`
		} `json:"rules"`
	}
	require.NoError(t, json.Unmarshal(text, &list), "%s", text)
	for _, r := range list.Rules {
		out = append(out, r.Name+" "+r.Port)
	}
	return out
}

// apiServer returns an HTTP client of the cluster's administrator, which follows no redirects, and
// the URL of the API server.
func apiServer(t *testing.T) (*http.Client, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "kubeconfigs", sdewanCluster+".yaml"))
	require.NoError(t, err)
	secure, err := rest.TLSConfigFor(config)
	require.NoError(t, err)
	transport := &http.Transport{
		TLSClientConfig: secure,
		TLSNextProto:    map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       10 * time.Second,
	}, config.Host
}

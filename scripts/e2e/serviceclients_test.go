//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// What clients in another cluster reach: a Service of the pods of the workload.
const (
	far = `
apiVersion: v1
kind: Service
metadata: {name: far, namespace: default}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`
	farName = "far.default.svc.clusterset.local"
)

// servesClients exports a Service, and has clients of each sort in another cluster use it: pods,
// and pods in the network of their node, by its name, and clients outside by a node port.
func servesClients(t *testing.T, to, from string) {
	t.Helper()
	apply(t, to, far)
	must(t, "subctl", "export", "service", "far", "-n", "default", "--context", to)
	var served []string
	for _, p := range pods(t, to, "web") {
		served = append(served, "pod="+p.name+" ")
	}
	answered := func(answer string, err error) error {
		if err != nil {
			return fmt.Errorf("%w: %s", err, answer)
		}
		if !slices.ContainsFunc(served, func(pod string) bool { return strings.HasPrefix(answer, pod) }) {
			return fmt.Errorf("want an answer of %v, got %s", served, answer)
		}
		return nil
	}
	for _, client := range slices.Concat(pods(t, from, "web"), pods(t, from, "host")) {
		eventually(t, 30*time.Second, func() error { // CoreDNS may not have read its new configuration
			if err := answered(client.try("get", "http://"+farName+"./", "--timeout", "5s")); err != nil {
				return fmt.Errorf("%s on %s: %w", client.name, client.node, err)
			}
			return nil
		})
	}
	port := nodePortTo(t, from, farEndpoints(t, from, to))
	for _, node := range nodes(from) {
		eventually(t, 10*time.Second, func() error {
			if err := answered(fetch(fmt.Sprintf("http://%s:%s/", nodeIP(t, node), port))); err != nil {
				return fmt.Errorf("node port of %s: %w", node, err)
			}
			return nil
		})
	}
}

// servesNoMore ends what servesClients has begun.
func servesNoMore(t *testing.T, to, from string) {
	t.Helper()
	must(t, "subctl", "unexport", "service", "far", "-n", "default", "--context", to)
	kubectl(t, from, "delete", "service,endpointslice", "far-port")
	eventually(t, discovered, func() error { return resolves(pods(t, from, "web")[0], farName, "NXDOMAIN") })
}

// farEndpoints are the endpoints of one exporter, in another cluster.
func farEndpoints(t *testing.T, in, of string) (slice discoveryv1.EndpointSlice) {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	text := kubectl(t, in, "get", "endpointslices", "-o", "json",
		"-l", "multicluster.kubernetes.io/service-name=far,multicluster.kubernetes.io/source-cluster="+of)
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.Len(t, list.Items, 1)
	require.NotEmpty(t, list.Items[0].Endpoints)
	return list.Items[0]
}

// nodePortTo offers endpoints of another cluster on a port of all nodes, as an administrator may,
// and returns the port.
func nodePortTo(t *testing.T, in string, to discoveryv1.EndpointSlice) string {
	t.Helper()
	endpoints := []string{}
	for _, e := range to.Endpoints {
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%s]}", e.Addresses[0]))
	}
	apply(t, in, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: far-port, namespace: default}
spec: {type: NodePort, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: far-port, namespace: default, labels: {kubernetes.io/service-name: far-port}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [%s]
`, *to.Ports[0].Port, strings.Join(endpoints, ", ")))
	return kubectl(t, in, "get", "service", "far-port", "-o", "jsonpath={.spec.ports[0].nodePort}")
}

// fetch is a client outside of all clusters.
func fetch(url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// cniNames has clients in each cluster use a Service of the other one.
func cniNames(t *testing.T) {
	for i, from := range clusters {
		to := clusters[1-i]
		servesClients(t, to, from)
		var addresses []string
		for _, e := range farEndpoints(t, from, to).Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		for _, p := range pods(t, to, "web") {
			require.Contains(t, addresses, p.ip, "connections go to the pods")
		}
		servesNoMore(t, to, from)
	}
}

// globalNames has clients use Services of the other cluster by name. The endpoints of imports are
// global addresses; a headless Service has one for each pod; and with "direct", the DNS server uses
// the Service's GlobalIp when it replies to queries for the Service.
func globalNames(t *testing.T) {
	const to, from = "cluster2", "cluster1"
	client := podOn(t, from, "web", worker(t, from))
	servesClients(t, to, from)
	ip := globalIP(t, to, "far")
	vip := kubectl(t, from, "get", "serviceimports", "far", "-o", "jsonpath={.spec.ips[0]}")
	require.NotEqual(t, ip, vip)
	require.NoError(t, resolves(client, farName, "NOERROR", vip))
	slice := farEndpoints(t, from, to)
	require.Len(t, slice.Endpoints, 1)
	require.Equal(t, []string{ip}, slice.Endpoints[0].Addresses)

	var each []string
	for _, p := range pods(t, to, "db") {
		address := globalIP(t, to, "pod-"+p.name)
		each = append(each, address)
		name := p.name + "." + to + ".db.default.svc.clusterset.local"
		eventually(t, discovered, func() error { return resolves(client, name, "NOERROR", address) })
		require.Contains(t, client.exec(t, "get", "http://"+name+".:8080/", "--timeout", "15s"), "pod="+p.name+" ")
	}
	eventually(t, discovered,
		func() error { return resolves(client, "db.default.svc.clusterset.local", "NOERROR", each...) })

	must(t, "subctl", "export", "service", "far", "-n", "default", "--context", to, "--direct")
	eventually(t, discovered, func() error { return resolves(client, farName, "NOERROR", ip) })
	require.Contains(t, client.exec(t, "get", "http://"+farName+"./", "--timeout", "15s"), "pod=web-")
	servesNoMore(t, to, from)
}

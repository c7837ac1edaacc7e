package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"subctl/cable"
	"subctl/cable/ipsec"
	"subctl/dataplane"
)

// exampleConfig is the settings of the example.
const exampleConfig = `vxlanID: 100       # for every driver that has the setting
wireguard:         # for one driver, and for the combined cable with it
  keepalive: 25s
  mtu: 1400`

// optionsPage has four holes: the example, the settings, proposals, and packet sizes. ~ stands for the
// backquote, which a Go string of several lines cannot hold.
const optionsPage = `<!-- generated: make generate -->

# Settings of the cable drivers

Every driver works without any. Those of a cluster are YAML, in a ConfigMap:

~~~yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: cable-driver-config
  namespace: submariner-operator
data:
  CableCustomConfig: |
%s
~~~

Name it when joining, ~subctl join --cable-driver-config cable-driver-config~, or later in the Submariner:

~~~sh
kubectl -n submariner-operator patch submariner submariner --type merge \
  -p '{"spec":{"cableDriverCustomConfig":{"configMapName":"cable-driver-config"}}}'
~~~

A cable policy names one with ~--cable-config~: its settings hold for the pairs of clusters
that the policy decides, at both ends, over those that each cluster has for itself.

What is written under a driver's own name counts most, then what is under the name of a
part of a combined cable, then what is under none. A setting of the gateway as a whole,
such as a port, is the cluster's: it has one value for all cables, and no policy can change it.

## What there is

| setting | drivers | values | default | set for | what it does |
| --- | --- | --- | --- | --- | --- |
%s
%s
The UDP ports of one gateway must differ from each other, and from those that subctl
[takes for itself](numbers.md).

## Packet sizes

A cable carries packets as large as the path between its two gateways lets through, which they
[find out](nat.md), less what the cable itself takes. Routes to the other clusters have that MTU, and the segment size of
TCP connections follows it; there is nothing to set. Of a path of 1500 bytes, with the default settings, that leaves:

| cable | bytes inside | bytes taken |
| --- | --- | --- |
%s
All of it is IPv4, inside the cables and outside: there are no cables over IPv6, where headers are 20 bytes longer.
The setting ~mtu~ can only make packets smaller.

## Changes

The gateway reads the ConfigMap through the API server, and applies a change at once, without
a new pod. (If it was named when joining it is mounted in the gateway's pods as well, for those who
look there, at ~Submariner.spec.cableDriverCustomConfigPath~; the files follow a change within about
a minute, and nothing waits for them. One that is named later, or another path, is mounted when
~subctl join~ is run again.) Where a pair of clusters gets another device by it, the new cable is
up and answers before traffic moves to it.

What a change costs the traffic:

| setting | how it changes | what is lost |
| --- | --- | --- |
| ~vxlanID~ | another device, beside the first | nothing |
| ~mtu~, ~keepalive~, ~debug~ | in place | nothing |
| ~ikeProposals~, ~espProposals~, ~ikeLifetime~, ~espLifetime~, ~dpdDelay~, ~encapsulation~ | keys are negotiated anew, beside those in use | with ESP in the kernel, what one end sends in half a round trip; else nothing |
| ~wireguardPort~ | in place; the other ends follow the first packet from the new port | nothing, unless the new port is closed on the way |
| ~ipsecPort~ | strongSwan ends, and starts again | all IPsec cables of the gateway stop until the other clusters have learned of the port: seconds |
| ~vxlanPort~ | both ends need the same | the pair is not connected until both have it |

Proposals that the other end does not accept leave the keys in use that there are, and
~subctl show connections -o wide~ says so.

A mistake changes nothing: the settings that were in force before stay, also over restarts and
over a change of the active gateway. The condition ~CableConfigValid~ of the Gateway objects
and an Event say which line, setting and value it is, and what it could be:

~~~sh
kubectl -n submariner-operator get events --field-selector reason=BadCableConfig
~~~

The settings in force are in the annotation ~submariner.io/cable-config~ of the cluster's own
Cluster object. If the ConfigMap is deleted they stay, too: to go back to the defaults, empty it or
remove its name from the Submariner.

Some fields of the Submariner are upstream's form of settings of ipsec, and hold where the ConfigMap
does not say otherwise: ~ceIPSecNATTPort~ (~ipsecPort~), ~ceIPSecForceUDPEncaps~ (~encapsulation: yes~), ~ceIPSecDebug~
(~debug~) and ~ceIPSecPreferredServer~ (~preferredServer~). Which end of a pair begins to negotiate: the other one, if exactly
one of the two is a preferred server; else the one behind an address translation, else the one of the lower cable name. The
end that waits begins too if nothing has come for some seconds. ~ceIPSecPSKSecret~ names the Secret with the pre-shared
key of the join file ([keys](keys.md)), which gateway pods mount: after a change run ~subctl join~ again, which keeps the
name. ~ceIPSecPSK~, the key itself, is never written and never read.
`

// options returns the page of the settings of drivers.
func options(drivers []cable.Driver) string {
	type row struct {
		option  cable.Option
		drivers []string
	}
	var rows []row
	for _, d := range drivers {
		for _, o := range d.Options() {
			i := slices.IndexFunc(rows, func(r row) bool { return sameOption(r.option, o) })
			if i < 0 {
				i, rows = len(rows), append(rows, row{option: o})
			}
			rows[i].drivers = append(rows[i].drivers, d.Name())
		}
	}
	var b strings.Builder
	for _, r := range rows {
		whom := "the gateway"
		if r.option.PerPair {
			whom = "each pair"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.option.Key, strings.Join(r.drivers, ", "), cell(r.option.Values()),
			cell(defaultOf(r.option)), whom, cell(r.option.Doc))
	}
	example := "    " + strings.ReplaceAll(exampleConfig, "\n", "\n    ")
	return fmt.Sprintf(strings.ReplaceAll(optionsPage, "~", "`"), example, b.String(), proposals(), sizes(drivers))
}

// sizes are the rows of what cables take of a path of 1500 bytes.
func sizes(drivers []cable.Driver) string {
	const path = 1500
	var b strings.Builder
	for _, d := range drivers {
		last := 0
		for _, is := range []struct {
			how    string
			engine string
			peer   cable.Peer
		}{
			{"", dataplane.EngineKernel, cable.Peer{MTU: path}},
			{", through address translation", dataplane.EngineKernel, cable.Peer{MTU: path, NATed: true}},
			{", ESP in userspace", "userspace", cable.Peer{MTU: path}},
		} {
			is.peer.Config = cable.Config{}
			c := cable.Cable{Peer: is.peer, Driver: d}
			inside := c.MTU(cable.Local{MTU: path, IPsec: dataplane.Engine{Name: is.engine}})
			if inside != last {
				fmt.Fprintf(&b, "| %s%s | %d | %d |\n", d.Name(), is.how, inside, path-inside)
			}
			last = inside
		}
	}
	return b.String()
}

// proposals says what the proposals of IPsec can consist of.
func proposals() string {
	var b strings.Builder
	b.WriteString(`### Proposals

A proposal is written as strongSwan does it, in small letters with dashes in between:

| part | what it can be |
| --- | --- |
`)
	for _, p := range ipsec.Parts() {
		fmt.Fprintf(&b, "| %s | `%s` |\n", p.Name, strings.Join(p.Names, "`, `"))
	}
	fmt.Fprintf(&b, `
The ciphers %s check integrity themselves and take no integrity check; the others need one.
Only proposals of IKE have a pseudo-random function; it may be left out after an integrity check, whose hash then
serves. A Diffie-Hellman group is never optional: without it keys that leak later would open packets that
were recorded before. What RFC 8221 and RFC 8247 advise against, such as 3DES, MD5, SHA-1 and modp1024, is refused by name.

~~~yaml
ikeProposals: aes256gcm16-prfsha384-x25519,aes256-sha256-modp4096
espProposals: aes256gcm16-ecp384,aes128-sha256-ecp256
~~~
`, "~"+strings.Join(ipsec.Checked(), "~, ~")+"~")
	return strings.ReplaceAll(b.String(), "~", "`")
}

// sameOption says whether two drivers have an option in common. Functions cannot be
// compared, and what they check is not on the page.
func sameOption(a, b cable.Option) bool {
	a.Check, b.Check = nil, nil
	return reflect.DeepEqual(a, b)
}

// defaultOf is what holds where nobody says anything; a number out of its own range
// stands for none.
func defaultOf(o cable.Option) string {
	if n := (cable.Config{}).Number(o); o.Default == "" || o.Kind == cable.OptionNumber && (n < o.Min || n > o.Max) {
		return "none"
	}
	return "`" + o.Default + "`"
}

// cell keeps a text within its cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"subctl/cable"
)

// exampleConfig is the settings of the example.
const exampleConfig = `vxlanID: 100       # for every driver that has the setting
wireguard:         # for one driver, and for the combined cable with it
  keepalive: 25s
  mtu: 1400`

// optionsPage has two holes: the example and the rows of the table. ~ stands for the
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
The UDP ports of one gateway must differ from each other, and from those that subctl
[takes for itself](numbers.md).

## Changes

The gateway reads the ConfigMap through the API server, and applies a change at once, without
a new pod. (If it was named when joining it is mounted in the gateway's pods as well, for those who
look there, at ~Submariner.spec.cableDriverCustomConfigPath~; the files follow a change within about
a minute, and nothing waits for them.) Where a pair of clusters gets another device by it, the new cable is
up and answers before traffic moves to it.

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
does not say otherwise: ~ceIPSecNATTPort~, ~ceIPSecForceUDPEncaps~ and ~ceIPSecDebug~.
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
	return fmt.Sprintf(strings.ReplaceAll(optionsPage, "~", "`"), example, b.String())
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

package clusterdns

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/services"
)

// byHand is the advice for a Corefile that subctl does not change.
func byHand(stanza string) string {
	return "add this to the Corefile where its manager keeps it, and remove it after subctl uninstall:\n" + stanza
}

// cloudDNSCommands is the advice for Cloud DNS for GKE.
const cloudDNSCommands = `give Service submariner-operator/submariner-dns an internal load balancer (UDP and TCP
port 53), and forward the domain to its address:
gcloud dns managed-zones create clusterset-local --dns-name=` + services.Domain + `. --visibility=private \
  --networks=NETWORK --forwarding-targets=ADDRESS --description="imported Services"`

// addonCommands returns the commands for the add-on of EKS.
func (f *Facts) addonCommands(corefile string) string {
	name := f.labels()["alpha.eksctl.io/cluster-name"]
	if name == "" {
		name = "CLUSTER"
	}
	values, err := json.Marshal(map[string]string{"corefile": corefile})
	if err != nil {
		panic(fmt.Sprintf("a string is JSON: %v", err))
	}
	return fmt.Sprintf(
		`give the add-on its Corefile with the block. The values replace those that it has, which the first
command prints: add them to the file.
aws eks describe-addon --cluster-name %[1]s --addon-name coredns --query addon.configurationValues --output text
cat > coredns.json <<'EOF'
%[2]s
EOF
aws eks update-addon --cluster-name %[1]s --addon-name coredns --resolve-conflicts PRESERVE \
  --configuration-values file://coredns.json`,
		name,
		values,
	)
}

// chartCommands returns the manifest for the chart of RKE2.
func (f *Facts) chartCommands(corefile, stanza string) string {
	text := corefile
	advice := "apply this, which has the present server blocks and the new one, with kubectl apply " +
		"-f:\n"
	if f.Chart != nil {
		text = stanza
		advice = "add this server to spec.valuesContent of HelmChartConfig " + system + "/" + rke2Name +
			", and the servers of the present Corefile if it has none:\n"
	}
	parsed, err := parse(text)
	servers, ok := chartServers(parsed)
	if err != nil || !ok {
		return "add this to spec.valuesContent of HelmChartConfig " + system + "/" + rke2Name +
			", as an item of servers:\n" + stanza
	}
	values := asYAML(map[string]any{"servers": servers})
	if f.Chart != nil {
		return advice + values
	}
	return advice + "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata:\n  name: " + rke2Name +
		"\n  namespace: " + system + "\nspec:\n  valuesContent: |-\n" + indentText(values, indent)
}

func indentText(text, by string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return by + strings.Join(lines, "\n"+by) + "\n"
}

// chartServers returns server blocks as values of the chart of CoreDNS. ok is false if the chart
// cannot express them.
func chartServers(c corefile) (out []any, ok bool) {
	for _, s := range c.servers {
		plugins, ok := chartPlugins(s.lines)
		if !ok {
			return nil, false
		}
		entry := map[string]any{"plugins": plugins}
		var zones []any
		for _, key := range s.keys {
			name, port, found := strings.Cut(key, ":")
			number, err := strconv.Atoi(port)
			if strings.HasPrefix(key, "(") || found && err != nil {
				return nil, false // a snippet, or a scheme
			}
			if found {
				entry["port"] = number
			}
			zones = append(zones, map[string]any{"zone": name})
		}
		entry["zones"] = zones
		out = append(out, entry)
	}
	return out, len(c.imports) == 0
}

// chartPlugins returns the lines of a server block as plugins of the chart. The chart adds the
// cluster's domain to the zones of plugin kubernetes, which may have it already.
func chartPlugins(lines []line) (out []any, ok bool) {
	var config []string
	for _, l := range lines {
		brace := slices.Index(l.words, "{")
		switch {
		case brace >= 0 && brace < len(l.words)-1:
			return nil, false // several lines in one
		case l.depth == 0 && l.words[0] == "}":
		case l.depth == 0:
			plugin := map[string]any{"name": l.words[0]}
			parameters := l.words[1:]
			if brace > 0 {
				parameters = l.words[1:brace]
			}
			if len(parameters) > 0 {
				plugin["parameters"] = join(slices.Compact(slices.Clone(parameters)))
			}
			out = append(out, plugin)
			config = nil
		default:
			config = append(config, strings.Repeat("  ", l.depth-1)+join(l.words))
			out[len(out)-1].(map[string]any)["configBlock"] = strings.Join(config, "\n")
		}
	}
	return out, true
}

// notes returns remarks about what the plan does not change.
func (f *Facts) notes(h Hook, address string) (out []string) {
	if text := f.nodeLocal(h, address); text != "" {
		out = append(out, text)
	}
	if h.Kind != Corefile && h.Kind != Custom {
		return out
	}
	parsed, err := parse(f.text())
	if err != nil || f.Corefile == nil {
		return out
	}
	if h.Kind == Custom && len(parsed.imports) == 0 {
		out = append(out, fmt.Sprintf("CoreDNS does not read %s: its Corefile, in ConfigMap %s, imports no file "+
			"outside of "+
			"its server blocks", h.Where, client.ObjectKeyFromObject(f.Corefile)))
	}
	if len(h.Changes) == 0 {
		return out
	}
	if !parsed.reloads() {
		out = append(out, "CoreDNS does not read its Corefile again, because it lacks the plugin reload: restart it "+
			"with "+
			"kubectl -n kube-system rollout restart deployment coredns")
	}
	if by := f.Corefile.Labels["app.kubernetes.io/managed-by"]; h.Kind == Corefile && by == "Helm" {
		out = append(out, "Helm removes the block when it upgrades CoreDNS; the agent of service discovery adds it "+
			"again")
	}
	return out
}

// nodeLocal returns what to add to NodeLocal DNSCache, which does not ask CoreDNS for the domain;
// empty if there is none, or it forwards the domain. It follows the stub domains of kube-dns by
// itself.
func (f *Facts) nodeLocal(h Hook, address string) string {
	if f.NodeLocal == nil || h.Kind == KubeDNS || h.Kind == CloudDNS {
		return ""
	}
	if f.NodeLocalConfig == nil {
		return fmt.Sprintf("NodeLocal DNSCache (DaemonSet %s) needs a server block of %s, too: see docs/services.md",
			client.ObjectKeyFromObject(f.NodeLocal), services.Domain)
	}
	where := client.ObjectKeyFromObject(f.NodeLocalConfig)
	at := usual
	if parsed, err := parse(f.NodeLocalConfig.Data[corefileKey]); err == nil {
		if s, found := parsed.domain(); found && s.forwards(address) {
			return ""
		}
		if found, err := parsed.site(); err == nil {
			at = found
		}
	}
	return fmt.Sprintf("NodeLocal DNSCache answers the pods, and does not ask CoreDNS for %s: add this to key %s of "+
		"ConfigMap %s, in place of another block of the domain, with kubectl -n %s edit configmap %s\n%s",
		services.Domain, corefileKey, where, where.Namespace, where.Name, at.block(address))
}

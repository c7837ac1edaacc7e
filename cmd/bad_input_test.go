package cmd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/broker"
)

// badInputs are command lines with a mistake, each after its exit code. The files are made by
// TestBadInput.
const badInputs = `2 frobnicate
2 show nothing
2 show conections
2 show connections extra
2 show connections -o xml
2 show connections --contexts
2 show connections --contexts ,
2 show connections --contexts nirvana
2 show connections --contexts west --context west
2 show connections --context nirvana
2 show connections --watch --wait
2 show connections --wait --timeout 0
2 show connections --wait --timeout soon
2 show connections --wait --timeout -5s
2 show plan
1 show plan nirvana
2 show plan a b
2 show plan gw-1 --node gw-1
2 show plan --node ""
2 show all --output=
2 show all -o
2 show clusters --request-timeout soon
2 show trust --unknown
2 show versions -x
1 show brokers --kubeconfig /nonexistent
1 show brokers --kubeconfig dir
1 show brokers --kubeconfig garbage
1 show brokers --kubeconfig empty
2 cable-policy frob
2 cable-policy add
2 cable-policy add x
2 cable-policy add x y --cable-driver ipsec
2 cable-policy add x --cable-driver gre
2 cable-policy add x --cable-driver ""
2 cable-policy add X_Y --cable-driver ipsec
2 cable-policy add x --cable-driver ipsec --left-cluster-selector =
2 cable-policy add x --cable-driver ipsec --left-cluster-selector ,,,
1 cable-policy add x --cable-driver ipsec --cable-config nirvana
1 cable-policy add x --cable-driver ipsec --cable-config wrong
1 cable-policy add x --cable-driver ipsec --cable-config tiny
2 cable-policy add x --cable-driver ipsec --encryption maybe
2 cable-policy add x --cable-driver vxlan --encryption required
1 cable-policy add x --cable-driver ipsec --clusterset nirvana
2 cable-policy add x --cable-driver ipsec --clusterset ""
1 cable-policy add x --cable-driver ipsec --clusterset nirvana --context hub
1 cable-policy add secure --cable-driver ipsec
2 cable-policy add x --cable-driver ipsec -f bad.yaml
1 cable-policy add -f nonexistent
1 cable-policy add -f dir
1 cable-policy add -f empty
1 cable-policy add -f garbage
1 cable-policy add -f list.yaml
1 cable-policy add -f deploy.yaml
1 cable-policy add -f bad.yaml
1 cable-policy add -f badspec.yaml
1 cable-policy add -f noname.yaml
2 cable-policy add -f bad.yaml -f bad.yaml
1 cable-policy add -f -
2 cable-policy add --name x --name y
2 cable-policy delete
1 cable-policy delete nirvana
2 cable-policy delete a b
1 cable-policy delete east-cloud
2 cable-policy delete secure --name other
2 cable-policy explain
2 cable-policy explain west
2 cable-policy explain west west
1 cable-policy explain west nirvana
1 cable-policy explain wst east
2 cable-policy explain west east cloud
2 cable-policy list x
1 cable-policy list --broker
1 cable-policy list --context bare
2 cable-policy adopt
1 cable-policy adopt nirvana --context hub
1 cable-policy adopt secure --context west
1 cable-policy adopt --from nirvana --context hub
1 cable-policy adopt secure --context hub --broker-info nonexistent
1 cable-policy adopt secure --context hub --broker-info trunc.subm
2 label
2 label west
2 label west a
2 label west =
2 label west a=b a=c
1 label nirvana a=b
2 label west submariner.io/x=y
2 label WEST a=b
2 label west a=b\x1b[31m
2 export frob
2 export service
2 export service a b
2 export service default/web
2 export service Bad_Name
2 export service web -n Bad_NS
2 export service web -n ""
2 export service web --timeout 0
2 export service web -o wide
2 export service web --contexts west
1 export service web
1 export service web -n nirvana
1 export service web --context bare
2 unexport frob
2 unexport service
2 unexport service ""
2 unexport service a b
2 unexport service web --timeout 5s
1 unexport service web
2 show globalnet x
2 show globalnet --who
2 show globalnet --who 242.1.0
2 show globalnet --who ""
2 show globalnet --who fd00::1
2 show globalnet --who 242.0.0.0/16
2 show globalnet --who 242.0.0.1 --watch
1 show globalnet --who 10.9.8.7
1 show globalnet --who 242.0.9.9
2 gateway frob
2 gateway drain
2 gateway drain ""
2 gateway drain gw-1 gw-1
1 gateway drain nirvana
1 gateway drain gw-1
2 gateway drain gw-1 --grace-period -1s
2 gateway drain gw-1 --grace-period 25h
2 gateway drain gw-1 --grace-period soon
2 gateway drain gw-1 --wait --timeout 0
2 gateway drain gw-1 -o json
2 gateway drain gw-1 --contexts west
1 gateway drain gw-1 --context bare
2 gateway add
2 gateway add ""
2 gateway add gw-1 gw-1
2 gateway add gw-1 --timeout 0
2 gateway add gw-1 -o json
1 gateway add nirvana
1 gateway add gw-1 --context bare
2 gateway remove
2 gateway remove gw-1 gw-1
2 gateway remove gw-1 --grace-period 25h
2 gateway remove gw-1 --wait
1 gateway remove nirvana
1 gateway remove gw-1 --context bare
2 gateway undrain
2 gateway undrain gw-1 gw-1 ""
1 gateway undrain nirvana
1 gateway undrain gw-1 --context bare
2 join
1 join nonexistent
1 join dir
1 join empty
1 join garbage
1 join trunc.subm
2 join a b
2 join broker-info.subm --clusterid Bad_ID
2 join broker-info.subm --clusterid west --clustercidr nonsense
2 join broker-info.subm --clusterid west --cable-driver gre
2 join broker-info.subm --clusterid west --health-check-interval -1
2 join broker-info.subm --clusterid west --health-check-interval 4000 --health-check-max-packet-loss-count 0
2 join broker-info.subm --clusterid west --nattport 70000
2 join broker-info.subm --cluster-labels a
2 join broker-info.subm --clusterset ""
2 join broker-info.subm -o json
1 join -
2 invite
2 invite a b
2 invite Bad_ID
2 invite north --gateways 0
2 invite north --gateways many
2 invite north --networks nonsense
2 invite north --ttl 1s
2 invite north --ttl forever
1 invite north --broker-info nonexistent
2 broker frob
2 broker remove x
2 broker remove --force
2 broker remove --force=nodes --yes
2 broker remove --timeout 0
2 broker remove -n ""
2 broker remove --contexts west
2 uninvite
2 uninvite a b
2 uninvite Bad_ID
1 uninvite north --context west
1 uninvite nirvana --context hub
1 invite north --context west
2 invite north --broker-url ftp://x
2 invite north -o json
2 revoke
2 revoke a b
2 revoke east --join-files
1 revoke nirvana --context hub
1 revoke east --context west
1 revoke east --context hub --broker-info trunc.subm --yes
2 rotate-key x
2 rotate-key --timeout never
1 recover-broker-info --context west
2 recover-broker-info --token-ttl 1s
2 recover-broker-info -o json
2 uninstall x
2 uninstall west
2 uninstall --force
2 uninstall --force broker x
2 uninstall --force=true
2 uninstall --force=everything
2 uninstall --timeout 0
2 deploy-broker x
2 deploy-broker --components lighthouse
2 deploy-broker --globalnet --globalnet-cidr-range nonsense
2 deploy-broker --globalnet-cluster-size 0
2 deploy-broker --cable-driver gre
2 deploy-broker --policies-from nobody
2 deploy-broker --namespace Bad_NS
2 deploy-broker --broker-url nonsense://
1 deploy-broker --broker-info dir
1 deploy-broker --broker-info nonexistent/x
2 deploy-broker --broker-info dir --namespace Bad_NS
1 recover-broker-info --broker-info dir
1 recover-broker-info --signing-key-from nonexistent
1 invite north --join-file dir
2 deploy-broker --token-ttl 1000000h
1 deploy-broker --ipsec-psk-from nonexistent
2 deploy-broker -o json
2 version x
2 version -o wide
2 version -o table,json
2 completion tcsh
2 options x
2 help nirvana
2 --nonexistent
2 -o json
2 agent gateway x
2 agent nirvana
2 show clusters --contexts ""`

// remedies are words of messages that tell the user what to do, or what is expected.
var remedies = []string{
	": use ", ": specify ", "; specify ", ": see ", ": omit ", ": it has ", ": it knows ", "did you mean", "missing: ",
	": choose ", "choose another", "choose the", "requires ", ": subctl ", "set only one", ": it must be",
	"must start and end", "such as ", ": create it", "is in ", "copy the whole file again", ": copy it again",
	"write it like", "the policies are", "the clustersets are", "delete it there", "it contains no policy",
	"not YAML: ", "it is not a YAML mapping", "is not https://host:port", ": expected ", "specified twice",
	"neither KEY=VALUE", "a policy needs a name", "specify another file", "specify contexts", "use one of", "no nodes",
}

// TestBadInput runs commands with more than a hundred mistakes. Each has the right exit code,
// prints nothing on stdout, and prints a message of a few lines that names a remedy, and that
// contains no text that only programmers understand.
func TestBadInput(t *testing.T) {
	t.Chdir(t.TempDir())
	writeKeys(t, broker.JoinFileName)
	require.NoError(t, os.Mkdir("dir", 0o700))
	for name, text := range map[string]string{
		"empty":        "",
		"garbage":      "\x00\xff{{{\n- :",
		"list.yaml":    "- a\n- b\n",
		"trunc.subm":   "eyJicm9rZXJVUkwiOiJodH",
		"deploy.yaml":  "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
		"bad.yaml":     "apiVersion: submariner.io/v1alpha1\nkind: CablePolicies\nmetadata: {name: x}\nspec: [{name: gre}]\n",
		"badspec.yaml": "kind: CablePolicies\nmetadata: {name: x}\nspec: 7\n",
		"noname.yaml":  "kind: CablePolicies\nspec: [{name: ipsec}]\n",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	contexts := []string{"west", "hub", "bare"}
	for line := range strings.SplitSeq(badInputs, "\n") {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], `""`, "")
			}
			got := runIn(t, policyWorlds(), contexts, args[1:]...)
			require.Equal(t, args[0], string(rune('0'+got.code)), got.stderr)
			require.Empty(t, got.stdout)
			goodMessages(t, line, got.stderr)
			require.Contains(t, got.stderr, "Error: ")
			require.LessOrEqual(t, strings.Count(got.stderr, "\n"), 4)
			require.NotContains(t, got.stderr, "\x1b")
			require.True(t, containsAny(got.stderr, remedies), "a message without a remedy: %s", got.stderr)
		})
	}
}

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

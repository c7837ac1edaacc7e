package dataplane

// pongRules drop answers to pings that the node has not sent. All answers share the buffer of the
// socket with which an agent pings, so a flood from one cluster would displace the answers of the
// others.
func (a Antispoof) pongRules(r *antispoofRules) {
	if len(a.Pongs) == 0 {
		return
	}
	r.jump(AntispoofPongs, AntispoofInput, Match{Pong: true})
	r.drop(AntispoofPongs, Match{Unasked: true})
	if len(a.Unforwarded) > 0 {
		forged := []Match{{SAddr: around(a.Unforwarded)}, {IIFNot: "lo"}}
		for _, d := range a.Pongs {
			forged = append(forged, Match{IIFNot: d})
		}
		r.drop(AntispoofPongs, forged...)
	}
	*r = append(*r, AntispoofRule{Chain: AntispoofPongs, Over: EchoRate})
}

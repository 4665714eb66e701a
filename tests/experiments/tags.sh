# Measures the receiver's processor time for tag matching, by the program of examples/.
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
set -e
echo "csv protocol,way,others,bytes,messages,microseconds"
# one PROTOCOL OTHERS BYTES: measures both methods, one after the other.
one() {
    local way options=()
    [ "$1" = eager ] || options=(-r)
    for way in adapter software; do
        [ "$way" = adapter ] || options+=(-o)
        tag_matching -d "$RDMA0" -n "$ROUNDS" -l "$2" -s "$3" "${options[@]}" >result
        read -r microseconds _ _ _ _ _ _ _ messages _ <result
        [ "${messages:-0}" -gt 0 ]
        echo "csv $1,$way,$2,$3,$messages,$microseconds"
    done
}
for others in $LISTS; do
    one eager "$others" 64
done
for bytes in $SIZES; do
    for protocol in eager rendezvous; do
        [ "$protocol $bytes" = "eager 64" ] || one "$protocol" 0 "$bytes"
    done
done

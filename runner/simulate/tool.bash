#!/bin/bash
# tool call NAME [JSON | -] | tool schema NAME | tool list
#
# Calls the tools of the service. Prints the result as JSON. Exit status: 0 done, 1 refused, 4 rejected before it was sent, 5 no usable response came.
# Bash alone, no other program: the same text runs on a Debian system and in a closure that holds little more than bash.
LC_ALL=C
trap '' PIPE

usage() {
  printf 'usage: tool call NAME [JSON | -]\n       tool schema NAME\n       tool list\n' >&2
  exit 4
}
lost() {
  printf '%s\n' '@LOST@'
  printf 'tool: no response came; the call may have been carried out\n' >&2
  exit 5
}

mode=${1-} name='' args='{}'
case $mode in
  call)
    (($# == 2 || $# == 3)) || usage
    name=$2 args=${3-'{}'}
    [[ $args != - ]] || IFS= read -r -d '' args
    ;;
  schema)
    (($# == 2)) || usage
    name=$2
    ;;
  list) (($# == 1)) || usage ;;
  *) usage ;;
esac

body=$mode$'\n'${name//$'\n'/ }$'\n'$args
if ! { exec {io}<>/dev/tcp/127.0.0.1/@PORT@; } 2>/dev/null; then
  printf 'tool: the service cannot be reached\n' >&2
  exit 4
fi
printf 'POST /command HTTP/1.1\r\nHost: 127.0.0.1:@PORT@\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
  "${#body}" "$body" >&"$io" 2>/dev/null

status='' exit_status='' length=''
IFS= read -r line <&"$io" 2>/dev/null || lost
[[ $line =~ ^HTTP/1\.1\ ([0-9]{3}) ]] || lost
status=${BASH_REMATCH[1]}
while IFS= read -r line <&"$io" 2>/dev/null && line=${line%$'\r'} && [[ -n $line ]]; do
  case $line in
    'x-exit-status: '*) exit_status=${line#*: } ;;
    'content-length: '*) length=${line#*: } ;;
  esac
done
reply=''
IFS= read -r -d '' reply <&"$io" 2>/dev/null
[[ ${#reply} == "$length" ]] || lost
printf '%s' "$reply"
if [[ -z $exit_status ]]; then
  printf 'tool: the service did not take the request (HTTP %s)\n' "$status" >&2
  exit 4
fi
if [[ $exit_status == 5 ]]; then
  printf 'tool: the response is not JSON; the call may have been carried out\n' >&2
fi
exit "$exit_status"
